"""Single launches of steps that a growing run has folded: packed, for as long as there is room for them."""

import io
from typing import Final

import polars as pl
from msgspec import Struct

ROOM: Final = 1 << 23  # launches: ten minutes of fourteen thousand a second


class Pack(Struct, frozen=True):
    """Rows of some steps as compressed bytes."""

    first: int  # step
    last: int
    rows: int
    data: bytes


class Shelf(Struct, frozen=True, eq=False):
    """The newest packs. It never changes: whoever holds one may read it while a longer one is made."""

    packs: tuple[Pack, ...] = ()
    since: int | None = None  # the first step of which no row was dropped; None where no row was

    def with_rows(self, rows: pl.DataFrame, room: int) -> "Shelf":
        """Return the shelf with rows that know their step, without the oldest ones beyond the room."""
        if rows.is_empty():
            return self
        first, last = rows.select(low=pl.col("step").min(), high=pl.col("step").max()).row(0)
        packs = (*self.packs, Pack(first, last, rows.height, _packed(rows)))
        total, since, begin = sum(pack.rows for pack in packs), self.since, 0
        while total > room:
            total -= packs[begin].rows
            since = max(since or 0, packs[begin].last + 1)
            begin += 1
        return Shelf(packs[begin:], since)

    def steps(self, first: int, last: int) -> pl.DataFrame | None:
        """Return all rows of these steps, in order; None where some of them were dropped or never came."""
        if not self.packs or (self.since is not None and first < self.since):
            return None
        asked = pl.col("step").is_between(first, last)
        hold = [pack for pack in self.packs if pack.first <= last and first <= pack.last]
        frames = [pl.read_ipc(io.BytesIO(pack.data)).filter(asked) for pack in hold]
        return pl.concat(frames, how="diagonal").sort("step", maintain_order=True) if frames else None


def _packed(rows: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    rows.write_ipc(out, compression="zstd")
    return out.getvalue()
