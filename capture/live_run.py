"""LiveRun: a snapshot of a growing run. Results computed per chunk of events are shared by snapshots."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from capture.launch_archive import LaunchArchive
from capture.run import Run


@dataclass(frozen=True, eq=False)
class Chunk:
    """Immutable events, and results computed from them alone, by question."""

    events: pl.DataFrame
    cache: dict[Hashable, Any] = field(default_factory=dict)


class ChunkList:
    """Chunks in order; neighbours of similar size are merged, so that a long run has few."""

    def __init__(self, max_rows: int | None = None, chunks: Sequence[Chunk] = ()) -> None:
        """Merge chunks up to `max_rows` rows, None for any number."""
        self._max_rows = max_rows
        self.chunks = [piece for piece in chunks if piece.events.height]

    @property
    def height(self) -> int:
        return sum(frame.height for frame in self)

    def add(self, frame: pl.DataFrame) -> None:
        """Append a frame."""
        self.chunks.append(Chunk(frame))
        while len(self.chunks) > 1 and self._should_merge(*self.chunks[-2:]):
            last = [self.chunks.pop().events for _ in range(2)][::-1]
            self.chunks.append(Chunk(pl.concat(last, how="diagonal", rechunk=True)))

    def _should_merge(self, left: Chunk, right: Chunk) -> bool:
        small, large = right.events.height, left.events.height
        return large < 2 * small and (self._max_rows is None or small + large <= self._max_rows)

    def split_off_retained(
        self, is_retained: Callable[[pl.DataFrame], bool]
    ) -> tuple[pl.DataFrame, list[Chunk]]:
        """Return all up to the last chunk that is not retained as one frame, and the chunks after it."""
        first = len(self.chunks)
        while first and is_retained(self.chunks[first - 1].events):
            first -= 1
        frames = [piece.events for piece in self.chunks[:first]]
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(), self.chunks[first:]

    def prepend_frame(self, frame: pl.DataFrame, chunks: Sequence[Chunk]) -> "ChunkList":
        """Return a frame and the chunks after it as a list like this one."""
        return ChunkList(self._max_rows, (Chunk(frame), *chunks))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return (piece.events for piece in self.chunks)


@dataclass(frozen=True, eq=False, kw_only=True)
class LiveRun(Run):
    """A snapshot of a growing run. A run made from it with other events is a `Run` (`Run.with_events`)."""

    chunks: tuple[Chunk, ...] = ()  # the events, in this order; none if it has ended
    archive: LaunchArchive = field(default_factory=LaunchArchive)  # launches of compacted steps
    earlier_steps: pl.DataFrame = field(default_factory=pl.DataFrame)  # history, also of compacted steps


def list_chunks(run: Run) -> tuple[Chunk, ...]:
    """Return the chunks of a run; none if it does not grow."""
    return run.chunks if isinstance(run, LiveRun) else ()
