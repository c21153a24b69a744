"""Import: records read, kept, repaired and dropped."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.merged.partial_results import FrameShape, PartialResult
from tracetui.look import Look
from tracetui.views import Answer, Merging, View

_COUNTS: Final = ("read", "kept", "repaired", "dropped")
_SCHEMA: Final = {
    "what": pl.String(), "severity": pl.String(), "count": pl.Int64(), "message": pl.String(),
    "offsets": pl.String(),
}  # fmt: skip
SHAPES: Final = {
    "counts": FrameShape(("what",), {"count": "sum"}),
    "notices": FrameShape(("what", "severity", "message"), {"count": "sum"}),
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return four counts, then each notice with the offsets of its first occurrences."""
    log = runs[0].log
    sums = (log.read, log.retained, log.repaired, log.dropped)
    rows = [
        *((what, None, count, None, None) for what, count in zip(_COUNTS, sums, strict=True)),
        *(
            (n.id, n.severity, n.count, n.message, ", ".join(map(str, n.offsets)) or None)
            for n in log.notices
        ),
    ]
    notes = (f"{log.format or 'unknown format'} from {log.source or 'an unnamed source'}",)
    return Answer(pl.DataFrame(rows, schema=_SCHEMA, orient="row"), notes, key=("what",))


def _compute_partial(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    rows = answer([run], look).rows
    notices = rows.filter(pl.col("severity").is_not_null())
    return {
        "counts": rows.filter(pl.col("severity").is_null()).select("what", "count"),
        "notices": notices.select("what", "severity", "message", "count"),
    }


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the counts summed over all files, then each notice by frequency."""
    counts, notices = merged.frames["counts"], merged.frames["notices"]
    notices = notices.sort("count", "what", "message", descending=[True, False, False])
    ordered = counts.sort(pl.col("what").replace_strict({w: i for i, w in enumerate(_COUNTS)}))
    empty = pl.DataFrame(schema=_SCHEMA)
    formats = " and ".join(merged.members["format"].unique().sort())
    return Answer(pl.concat([empty, ordered, notices], how="diagonal"), (formats,), key=("what",))


VIEW = View(
    "import",
    "Import",
    answer,
    filters="rows",
    merging=Merging(_compute_partial, SHAPES, finish_answer),
    columns=("what", "count", "message", "severity", "offsets"),
    tab="palette",
)
