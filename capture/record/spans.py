"""Recorder: times the parts of a loop, step by step, for a third of a microsecond each. Stdlib only."""

import os
import sys
from collections.abc import Sequence
from operator import gt, sub
from types import TracebackType
from typing import Any, Self

from ..native.emit import Emitter, now
from . import account
from .account import OUT


class Span:
    """The timer of one part of a step; made once, entered every time that the part runs."""

    __slots__ = ("_done", "_id", "_pop", "_push")

    def __init__(self, id: int, stack: list[int], records: list[tuple[int, int, int]]) -> None:
        self._id = id
        self._push, self._pop, self._done = stack.append, stack.pop, records.append

    def __enter__(self) -> None:
        self._push(now())

    def __exit__(self, *error: object) -> None:
        self._done((self._id, self._pop(), now()))


class Step:
    """One step of the loop; the spans that end within it belong to it."""

    def __init__(self, recorder: "Recorder", number: int, phase: str | None, facts: dict[str, Any]) -> None:
        self.number = number
        self._recorder, self._phase, self._facts = recorder, phase, facts
        self._start = 0

    def __enter__(self) -> Self:
        self._recorder.write_spans()
        self._start = now()
        return self

    def __exit__(self, *error: object) -> None:
        took = now() - self._start
        context = self._facts.get("context")
        self._recorder.write_spans(step=self.number, phase=self._phase, context=context)
        facts = {"step": self.number, "phase": self._phase, **self._facts}
        self._recorder.emitter.event("step", self._phase or "step", t=self._start, dur=took, **facts)


class Recorder:
    """Records a loop of one's own into a file that tracetui opens, also while it grows.

        from tracetui import Recorder

        with Recorder("prof.jsonl", model="mine") as rec:
            for n in range(100):
                with rec.step(context=n):
                    for layer in range(26):
                        with rec.span("attention", layer=layer):
                            ...

    Without a path it writes to `$TRACETUI_OUT`, so that `tracetui live -- python loop.py` shows it, and
    nowhere where that is not set. A span that holds other spans shows in the tree; the innermost ones are
    what the kernel table adds up. `span` takes what is known of the work: layer, op, category, shape,
    flops, bytes, window, track. Keep the object in a variable to save the look-up in a hot loop.
    A recorder belongs to one thread. On a GPU a span measures the launch unless the work is awaited in it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        rank: int | None = None,
        lens: str = "wall",
        **meta: Any,
    ) -> None:
        self.emitter = Emitter(path or os.environ.get(OUT) or os.devnull, rank=rank)
        self.emitter.run(
            name or str(meta.get("model", "run")), {"argv": sys.argv, "pid": os.getpid(), **meta}
        )
        self._lens = lens
        self._spans: dict[Any, Span] = {}
        self._ops: list[dict[str, Any]] = []
        self._planned: set[int] = set()
        self._stack: list[int] = []
        self._records: list[tuple[int, int, int]] = []
        self._steps = 0
        self._span_ns = _span_ns()

    def span(self, name: str, **about: Any) -> Span:
        """Return the timer of a part of a step: the same object for the same name and facts."""
        key = (name, *about.values()) if about else name
        try:
            return self._spans[key]
        except (KeyError, TypeError):
            return self._new_span(key, name, about)

    def step(
        self,
        *,
        phase: str | None = "decode",
        context: int | None = None,
        tokens: int | None = 1,
        batch: int | None = None,
    ) -> Step:
        """Return the next step, to be entered; a prefill is step 0, others count from 1."""
        if phase != "prefill":
            self._steps += 1
        number = 0 if phase == "prefill" else self._steps
        return Step(self, number, phase, {"context": context, "tokens": tokens, "batch": batch})

    def counter(self, name: str, value: float, unit: str = "") -> None:
        """Write a measured value, now."""
        self.emitter.counter(name, value, unit)

    def mark(self, text: str) -> None:
        """Write a line of text, now."""
        self.emitter.mark(text)

    def write_spans(
        self, *, step: int | None = None, phase: str | None = None, context: int | None = None
    ) -> None:
        """Hand the spans that have ended to the emitter, as those of this step."""
        if not self._records:
            return
        began = now()
        entered, starts, ends = zip(*self._records, strict=True)
        self._records.clear()
        ids = _numbers_by_nesting(entered, starts)
        new = set(ids) - self._planned
        if new:
            self._planned |= new
            self.emitter.plan(self._op(id) for id in sorted(new))
        durations = list(map(sub, ends, starts))
        self.emitter.cost_ns += now() - began + self._span_ns * len(durations)
        self.emitter.columns(ids, starts, durations, step=step, phase=phase, context=context)

    def _new_span(self, key: Any, name: str, about: dict[str, Any]) -> Span:
        span = Span(2 * len(self._ops), self._stack, self._records)
        self._ops.append({"name": name, "lens": self._lens, **about})
        try:
            self._spans[key] = span
        except TypeError:  # a fact that cannot be hashed, as a list: the caller keeps the object
            self._spans[len(self._ops)] = span
        return span

    def _op(self, id: int) -> dict[str, Any]:
        return {"id": id, "kind": "span" if id % 2 else "kernel", **self._ops[id // 2]}

    def close(self) -> None:
        """Write what waits, and end the run and its file."""
        self.write_spans()
        self.emitter.end()
        if why := self.emitter.unwritten:
            account.note("gaps " + why)
            sys.stderr.write(f"tracetui: the recording has gaps: {why}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.emitter.mark(f"the program ended with {type(error).__name__}: {error}", "log")
        self.close()


def _span_ns() -> int:
    """Return how long entering and leaving a span takes here, so that a recording can state its own cost."""
    span = Span(0, [], [])
    took = []
    for _ in range(50):
        began = now()
        with span:
            pass
        took.append(now() - began)
    return sorted(took)[25]


def _numbers_by_nesting(ids: Sequence[int], starts: Sequence[int]) -> Sequence[int]:
    """Return the even numbers of innermost spans, odd ones for spans that held others (they end later)."""
    before = (starts[0], *starts)
    if not any(map(gt, before, starts)):
        return ids
    return [
        id + (earlier >= start) if i else id
        for i, (id, earlier, start) in enumerate(zip(ids, before, starts, strict=False))
    ]
