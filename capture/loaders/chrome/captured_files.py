"""The captures that may tell of a trace's graphs: read only as far as its replays need them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from capture.captures import LARGEST, batch_in_name
from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders.chrome.captured import CapturedGraph, read_graphs
from capture.loaders.chrome.captured_fit import Need
from capture.text import clean


@dataclass
class Captures:
    """The captures that may tell of a trace's graphs, and what became of them.

    `named` says whether a person named them: then one that shows no graph is an error.
    """

    paths: Sequence[Path] = ()
    named: bool = False
    sentence: str = ""  # what was taken from them, for whoever reads ops and shapes; empty for nothing
    _read: dict[Path, list[CapturedGraph]] = field(default_factory=dict)

    @property
    def meta(self) -> dict[str, str]:
        """Return what a run's meta says of them."""
        return {"captured": self.sentence} if self.sentence else {}

    def graphs(self, need: Need, log: Log) -> Iterator[CapturedGraph]:
        """Yield the graphs that may serve a need, the smallest first; files of smaller ones are not read."""
        waiting: list[CapturedGraph] = []
        for path in sorted(self.paths, key=lambda path: batch_in_name(path) or 0):
            batch = batch_in_name(path)
            if batch is not None and batch < max(need.requests or 0, need.padded or 0):
                continue
            ready = [graph for graph in waiting if batch is not None and graph.size < batch]
            yield from sorted(ready, key=lambda graph: graph.size)
            waiting = [graph for graph in waiting if graph not in ready] + self._graphs_of(path, log)
        yield from sorted(waiting, key=lambda graph: graph.size)

    def _graphs_of(self, path: Path, log: Log) -> list[CapturedGraph]:
        """Return the graphs of one file, read once."""
        if path not in self._read:
            self._read[path] = self._graphs_in(path, log)
        return self._read[path]

    def _graphs_in(self, path: Path, log: Log) -> list[CapturedGraph]:
        name = clean(path.name, 200)
        try:
            if not self.named and path.stat().st_size > LARGEST:
                log.note("capture_large", f"{name} lies beside it and is large: --capture {name} reads it")
                return []
            graphs = read_graphs(path)
        except (OSError, UnreadableError):
            if self.named:
                raise
            return []
        if not graphs and self.named:
            raise UnreadableError("shows no capture of a graph", where=clean(str(path), 4096))
        return graphs
