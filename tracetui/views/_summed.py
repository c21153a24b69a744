"""Views whose answer about many files is that of one run, of the sums of their rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.partial import reduced
from tracetui.analysis.partial.algebra import Partial
from tracetui.look import Look
from tracetui.views import Answer, Merging, lacking


def summed(
    answer: Callable[[Sequence[Run], Look], Answer],
    by: Callable[[Run, Look], Sequence[str]],
    needs: Collection[str],
) -> Merging:
    """Return how a view is asked about many files that asks of rows only how many they are, how long they
    took and how much work they did, by the columns that `by` names.
    """

    def partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
        return reduced.partial(run, look, by(run, look))

    def finish(whole: Partial, look: Look) -> Answer:
        run = reduced.run_of(whole)
        if lacking(needs, [run]):
            return Answer(pl.DataFrame(), (select.NOTHING,))
        window = look.window if whole.frames["rows"]["step"].count() else None
        return answer([run], replace(look, filter="", focus=(), window=window))  # each file did it

    return Merging(partial, reduced.SHAPES, finish, frozenset(needs))
