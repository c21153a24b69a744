"""Compare: N runs side by side, a row a kernel or op, and how each row scales."""

from collections.abc import Sequence

from capture.run import Run
from tracetui.look import Look
from tracetui.views import Answer, View


def answer(runs: Sequence[Run], look: Look) -> Answer:
    from tracetui.analysis.compare import (  # numpy and scipy load with the first question
        FEWEST,
        axis,
        matrix,
        normalised,
        scaling,
    )

    found = matrix(runs, look)
    rows, notes = found.rows, [f"{len(runs)} runs; {found.rows.height} rows"]
    base = look.terms.baseline
    if base is not None and found.columns:
        rows = normalised(found, min(base, len(runs) - 1))
        notes.append(f"each cell is a multiple of the same row in {runs[min(base, len(runs) - 1)].name}")
    along = axis(runs) if len(runs) >= FEWEST else None
    if along is not None:
        rows = rows.hstack(scaling(found, along[1]))
        notes.append(f"exponent: total ∝ {along[0]}^exponent, fitted over {len(runs)} runs")
    return Answer(rows, tuple(notes), ("row",))


VIEW = View("compare", "Compare", answer, needs=frozenset({"dur"}), runs=2)
