"""The tree of many files: the paths that each has measured, added up."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.partial.algebra import MEMBERS, Shape
from tracetui.analysis.tree import leaves, lens_of_tree
from tracetui.look import Look

SHAPES: Final = {
    "leaves": Shape(("path",), {**dict.fromkeys(("count", "own_ns", "span_ns"), "sum"), "work": "last"}),
}


def partial(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return the paths that a run has measured, and of which stopwatch their times are."""
    lens = pl.Series("lens", [lens_of_tree(run, look)], dtype=pl.String)
    return {"leaves": leaves(run, look), MEMBERS: lens.to_frame()}
