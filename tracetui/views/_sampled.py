"""How tables of samples are put together from many files."""

from collections.abc import Callable, Mapping

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.sampled import SHAPES, rows_of, table_of
from tracetui.look import Look
from tracetui.views import Answer, Merging


def merging(table: Callable[[Run, Look], pl.DataFrame], needs: frozenset[str]) -> Merging:
    """Return how a table of one row a sampled name is put together, each on the tracks of its file's rank."""

    def contribute(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
        return rows_of(table(run, look), run)

    return Merging(contribute, SHAPES, _finish, needs=needs, by_track=True)


def _finish(whole: Partial, look: Look) -> Answer:
    rows = table_of(whole)
    return Answer(rows, () if rows.height else (select.NOTHING,), key=("name",))
