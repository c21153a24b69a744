"""Archive of the single launches of compacted steps, compressed, up to a row limit."""

import io
from typing import Final

import polars as pl
from msgspec import Struct

MAX_LAUNCHES: Final = 1 << 23  # ten minutes at 14,000 launches per second


class ArchiveBlock(Struct, frozen=True):
    """Compressed rows of consecutive steps."""

    first_step: int
    last_step: int
    row_count: int
    data: bytes


class LaunchArchive(Struct, frozen=True, eq=False):
    """The newest blocks; immutable, so that readers are safe while a longer archive is built."""

    blocks: tuple[ArchiveBlock, ...] = ()
    complete_from: int | None = None  # first step without dropped rows; None if no row was dropped

    def append(self, rows: pl.DataFrame, limit: int) -> "LaunchArchive":
        """Return the archive with more rows (with a step), without the oldest blocks beyond the limit."""
        if rows.is_empty():
            return self
        first, last = rows.select(low=pl.col("step").min(), high=pl.col("step").max()).row(0)
        blocks = (*self.blocks, ArchiveBlock(first, last, rows.height, compress_frame(rows)))
        total, complete_from, start = sum(block.row_count for block in blocks), self.complete_from, 0
        while total > limit:
            total -= blocks[start].row_count
            complete_from = max(complete_from or 0, blocks[start].last_step + 1)
            start += 1
        return LaunchArchive(blocks[start:], complete_from)

    def read_steps(self, first: int, last: int) -> pl.DataFrame | None:
        """Return all rows of a step range in order, or None if any were dropped or never archived."""
        if not self.blocks or (self.complete_from is not None and first < self.complete_from):
            return None
        in_range = pl.col("step").is_between(first, last)
        blocks = [block for block in self.blocks if block.first_step <= last and first <= block.last_step]
        frames = [decompress_frame(block.data).filter(in_range) for block in blocks]
        return pl.concat(frames, how="diagonal").sort("step", maintain_order=True) if frames else None


def compress_frame(frame: pl.DataFrame) -> bytes:
    """Return a frame as a compressed Arrow stream.

    An Arrow file of a few rows takes ten times as long to write, and thirty times to read.
    """
    out = io.BytesIO()
    frame.write_ipc_stream(out, compression="zstd")
    return out.getvalue()


def decompress_frame(data: bytes) -> pl.DataFrame:
    """Return the frame of `compress_frame`."""
    return pl.read_ipc_stream(io.BytesIO(data))
