"""One decode step on a device: launched kernel by kernel, or captured as a graph and replayed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from engines.host.device import NS_PER_MS, Part, annotations

Parts = Sequence[Part]


class Event(Protocol):
    """A mark in a device's queue, with a time."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Any) -> float: ...


class Launched:
    """Runs a step kernel by kernel, with an event at every border between layers; a bare one has none."""

    def __init__(self, parts: Parts, *, external: bool = False, bare: bool = False) -> None:
        self._parts = parts
        self.borders = [new_event(external=external) for _ in range(0 if bare else len(parts) + 1)]
        self._notes = annotations(scope for _, ops in parts for scope, _ in ops)

    def run(self, *, watched: bool = False) -> None:
        borders = iter(self.borders)
        _record(borders)
        for _, ops in self._parts:
            for scope, op in ops:
                if watched:
                    with self._notes[scope]:
                        op()
                else:
                    op()
            _record(borders)

    def offsets(self) -> list[int]:
        """Return the nanoseconds from the first border to each, once the step is done; none of a bare one."""
        return [int(self.borders[0].elapsed_time(border) * NS_PER_MS) for border in self.borders]


class Captured:
    """Runs the same step as a graph.

    A border in a graph does not tell whether it was reached: whoever reads them waits for an event behind it.
    """

    def __init__(self, parts: Parts, *, bare: bool = False) -> None:
        self._launched = Launched(parts, external=True, bare=bare)
        self._graph = capture(self._launched.run)

    def run(self, *, watched: bool = False) -> None:
        self._graph.replay()

    def offsets(self) -> list[int]:
        """Return the same, once the graph is done."""
        return self._launched.offsets()

    def close(self) -> None:
        self._graph.reset()


def capture(run: Callable[[], None]) -> Any:
    """Return a graph of what `run` launches."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def _record(borders: Iterator[Event]) -> None:
    """Record the next border, where there is one."""
    for border in borders:
        border.record()
        return


def new_event(*, external: bool) -> Event:
    event: Event = torch.cuda.Event(enable_timing=True, external=external)
    return event
