"""Merge the answers of many files: sampled tables, and views that need only sums of rows."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.merged import merged_run
from tracetui.analysis.merged.partial_results import FrameShape, PartialResult
from tracetui.filter_syntax import with_event_terms
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, describe_missing_needs

_SAMPLE_KEY: Final = ("name", "unit", "track")


def build_sample_merging(table: Callable[[Run, Look], pl.DataFrame]) -> Merging:
    """Merge tables of one row per sampled name, each on the tracks of its file's rank."""

    def contribute(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
        rows, unknown = table(run, look), pl.lit(None, pl.String)
        key = {c: merged_run.cast_for_merge(c) if c in rows.columns else unknown for c in _SAMPLE_KEY}
        return {"rows": rows.with_columns(**key)}

    return Merging(contribute, {"rows": FrameShape(_SAMPLE_KEY)}, _finish_samples, by_track=True)


def _finish_samples(merged: PartialResult, look: Look) -> Answer:
    rows = merged.frames["rows"]
    key = [c for c in _SAMPLE_KEY if c in ("name", "track") or rows[c].count()]
    rows = rows.select(*key, pl.exclude(_SAMPLE_KEY))
    return Answer(rows, () if rows.height else (selection.NO_MATCH,), key=("name",))


def build_sum_merging(
    answer: Callable[[Sequence[Run], Look], Answer],
    by: Callable[[Run, Look], Sequence[str]],
    needs: Collection[str],
) -> Merging:
    """Merge a view that depends only on counts, times and work of rows, summed by the columns of `by`.

    The view's own `answer` is asked about a run that is built from the sums. It applies the filter and the
    focus on a layer, since its shares and deviations are of all rows.
    """

    def partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
        filtered = ("name", "op", *(term.column for term in look.where)) if look.filter or look.where else ()
        per_file, of_layer = _split_focus(look)
        everything = replace(look, filter="", where=(), focus=per_file)
        return merged_run.sum_run_rows(run, everything, (*by(run, look), *filtered, *dict(of_layer)))

    def finish(merged: PartialResult, look: Look) -> Answer:
        run = merged_run.build_run_of_sums(merged)
        if describe_missing_needs(needs, [run]):
            return Answer(pl.DataFrame(), (selection.NO_MATCH,))
        window = look.window if merged.frames["rows"]["step"].count() else None
        _, of_layer = _split_focus(look)
        return answer([run], replace(with_event_terms(look), focus=of_layer, window=window))

    return Merging(partial, merged_run.ROW_SHAPES, finish)


def _split_focus(look: Look) -> tuple[Focus, Focus]:
    """Return the part of the focus that each file applies, and the part that the answer applies."""
    of_layer = tuple(pair for pair in look.focus if pair[0] == "layer")
    return tuple(pair for pair in look.focus if pair not in of_layer), of_layer
