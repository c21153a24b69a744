"""Runs that lack a column, or have it alone: every view answers them or says what is missing."""

import json
from collections.abc import Sequence
from random import Random

import polars as pl
import pytest

from capture.errors import UsageError
from capture.import_log import Log
from capture.run import Run, build_run
from tracetui.look import GROUPS, Look
from tracetui.report_formats import format_report
from tracetui.views import load_views

WHOLE = {
    "kind": ["step", "kernel", "kernel", "step", "kernel", "span"], "name": ["s", "k", "j", "s", "k", None],
    "t": [0, 1, 4, 10, 11, 11], "dur": [9, 2, 3, 9, 5, 8], "step": [0, 0, 0, 1, 1, 1],
    "phase": ["decode"] * 6,
    "layer": [None, 0, 1, None, 0, None], "lens": ["wall", "gpu", "gpu", "wall", "gpu", "host"],
    "track": ["g"] * 6, "path": [None, "a", "a / b", None, "a", "x"],
    "shape": [None, "1x2", None, None, "1x2", None], "op": [None, "q", "q", None, "q", None],
    "flops": [None, 1.0, 2.0, None, 3.0, None], "bytes": [None, 1.0, 2.0, None, 3.0, None],
    "context": [1, 1, 1, 2, 2, 2], "count": [1, 1, 2, 1, 1, 1],
}  # fmt: skip
OPTIONAL = [column for column in WHOLE if column not in ("kind", "name")]
LOOKS = [
    *(Look(phase=phase) for phase in ("decode", "nothing")), *(Look(lens=lens) for lens in ("gpu", "wait")),
    *(Look(window=window) for window in ((0, 0), (5, 9))), Look(steady=True), Look(filter="zzz"),
    Look(per="step"),
    *(Look(group=group) for group in GROUPS), Look(zoom=(0, 5)), Look(limit=0),
    *(Look(focus=((column, value),)) for column, value in (
        ("name", "k"), ("name", None), ("layer", 0), ("scope", "a"), ("step", 1), ("op", "q"), ("table", "x"),
        ("track", "g"), ("shape", "1x2"), ("path", "a"),
    )),
]  # fmt: skip
EACH = 3  # looks of a run and a view, beside the plain one


def run_of(columns: Sequence[str]) -> Run:
    events = pl.DataFrame({"kind": WHOLE["kind"], "name": WHOLE["name"], **{c: WHOLE[c] for c in columns}})
    return build_run("thin", {}, events, Log(read=6), enriched=True)


@pytest.mark.corpus
@pytest.mark.parametrize("without", [True, False], ids=["without", "alone"])
@pytest.mark.parametrize("column", OPTIONAL)
def test_every_view_of_a_thin_run(column: str, without: bool) -> None:
    thin = run_of([c for c in OPTIONAL if (c != column) == without])
    whole, draw = run_of(OPTIONAL), Random(f"{column} {without}")
    for view in load_views():
        for look in (Look(), *draw.sample(LOOKS, EACH)):
            runs = [thin] if view.run_count == 1 else draw.choice(([thin, whole], [whole, thin]))
            try:
                actual = json.loads(format_report(view, runs, look, "json"))
                drawn = format_report(view, runs, look, "table")
            except UsageError:
                continue
            assert (actual["rows"] or actual["notes"] or actual["columns"]) and drawn.strip(), (
                view.name,
                look,
            )


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("view", "column", "look"),
    [
        ("summary", "dur", Look()), ("steps", "dur", Look()), ("findings", "dur", Look()),
        ("shifts", "step", Look(group="step")), ("diff", "phase", Look(phase="decode")),
        ("waterfall", "phase", Look(phase="decode")), ("curves", "phase", Look(group="phase")),
        ("shifts", "phase", Look(phase="decode")), ("timeline", "lens", Look(lens="gpu")),
        ("training", "lens", Look(lens="gpu")), ("steps", "phase", Look(phase="decode")),
    ],
)  # fmt: skip
def test_looks_at_what_a_source_does_not_tell(view: str, column: str, look: Look) -> None:
    """Each of these was a fault once."""
    thin, whole = run_of([c for c in OPTIONAL if c != column]), run_of(OPTIONAL)
    (asked,) = [v for v in load_views() if v.name == view]
    for runs in ([thin, whole], [whole, thin]):
        assert format_report(asked, runs, look).strip()


def test_kernels_that_take_no_time_have_no_share_of_it() -> None:
    events = pl.DataFrame({"kind": ["kernel"] * 2, "name": ["a", "b"], "t": [1, 2], "dur": [0, 0]})
    run = build_run("none", {}, events, Log(read=2))
    for view in load_views():
        if view.run_count == 1:
            assert format_report(view, [run], Look(), "md").strip()
