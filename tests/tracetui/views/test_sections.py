"""The sections of metallic's report where the source left figures out."""

import polars as pl

from tests.tracetui.runs import made
from tracetui.analysis.sections import ReportSection, select_durations
from tracetui.views.sections import _iter_section_lines


def test_a_figure_that_was_left_out_is_a_dash() -> None:
    actual = {"total": 2000.0, "mean": 1000.0, "min": None, "max": 1500.0, "p95": 1400.0}
    rows = pl.DataFrame([{"label": "op", "count": 2, **actual}], schema_overrides={"min": pl.Float64})
    *_, line = _iter_section_lines(ReportSection("t", rows))
    assert (
        line == "  op: count=2 | total=2.00ms | avg=1.000ms | min=– | max=1.500ms | p95_ms=1.400ms, p99_ms=–"
    )


def test_a_recording_without_a_duration_has_no_sample() -> None:
    names = pl.DataFrame(schema=dict.fromkeys(("lens", "name", "path", "raw"), pl.String))
    run = made([{"kind": "mark", "name": "selection", "t": 3}], {"names": names})
    assert select_durations(run).is_empty()
