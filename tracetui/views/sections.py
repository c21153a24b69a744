"""Sections: metallic's own report, from its recording or as printed."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis import sections as analysis
from tracetui.analysis.frames.name_filter import match_names
from tracetui.analysis.sections import ReportSection
from tracetui.look import Look
from tracetui.views import Answer, View
from tracetui.views.ink import DrawSize, Line, make_line

_STATISTICS: Final = ("total", "mean", "min", "max", "p95", "p99")
_SCHEMA: Final = {
    "section": pl.String,
    "label": pl.String,
    "under": pl.String,
    "count": pl.Int64,
    **{f"{c}_ns": pl.Int64 for c in _STATISTICS},
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per line of the report; the report as text is a part."""
    run = runs[0]
    sections = _select_sections(run, look)
    if not sections:
        nothing = pl.DataFrame({"line": []}, schema={"line": pl.String})
        return Answer(pl.DataFrame(), ("nothing matches this filter",), parts={"text": nothing})
    lines = [*_iter_head_lines(run), *(ln for section in sections for ln in _iter_section_lines(section))]
    rows = pl.concat(map(_build_rows, sections))
    return Answer(rows, key=("section", "label"), parts={"text": pl.DataFrame({"line": lines})})


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw the report as the analyzer prints it."""
    return [make_line((text, "title" if text[:1].strip() else "")) for text in answer.parts["text"]["line"]]


def _select_sections(run: Run, look: Look) -> list[ReportSection]:
    if "names" in run.tables and "event_types" in run.tables:
        all_sections = analysis.compute_sections(run)
    else:
        all_sections = analysis.read_printed_sections(run.tables)
    if not look.filter:
        return all_sections
    matching = [
        ReportSection(s.title, s.rows.filter(match_names(s.rows["label"], look.filter))) for s in all_sections
    ]
    return [s for s in matching if s.rows.height]


def _build_rows(section: ReportSection) -> pl.DataFrame:
    """Return a section in the columns of the answer, in integer ns."""
    rows = section.rows
    have = [c for c in _STATISTICS if c in rows.columns]
    rows = rows.select(
        *(c for c in ("label", "under", "count") if c in rows.columns),
        *((pl.col(c) * 1000).round().cast(pl.Int64).alias(f"{c}_ns") for c in have),
        section=pl.lit(section.title),
    )
    lacking = {c: pl.lit(None, t).alias(c) for c, t in _SCHEMA.items() if c not in rows.columns}
    return rows.with_columns(lacking.values()).select(*_SCHEMA)


def _iter_head_lines(run: Run) -> Iterator[str]:
    types = run.tables.get("event_types")
    events = types["count"].sum() if types is not None else run.meta.get("event_count")
    yield f"=== Analyzing {run.meta.get('recording', run.log.source)} ==="
    yield f"Total events: {events}"


def _iter_section_lines(section: ReportSection) -> Iterator[str]:
    yield ""
    yield f"{section.title}:"
    under = None
    for row in section.rows.iter_rows(named=True):
        if row.get("under") != under:
            under = row["under"]
            yield f"  {under}:"
        yield f"  {'  ' if under else ''}{row['label']}: {_format_statistics(row)}"


def _format_statistics(row: dict[str, Any]) -> str:
    """Format a row as the analyzer does: milliseconds, the total with two decimals."""
    if row.get("count") is None:
        return "no samples"
    if row.get("total") is None:
        return f"count={row['count']}"
    total, mean, minimum, maximum, p95, p99 = (
        _format_ms(row.get(c), 2 if c == "total" else 3) for c in _STATISTICS
    )
    return (
        f"count={row['count']} | total={total} | avg={mean} | min={minimum} | max={maximum} | "
        f"p95_ms={p95}, p99_ms={p99}"
    )


def _format_ms(us: float | None, digits: int) -> str:
    """Format microseconds as milliseconds; a dash for None."""
    return "–" if us is None else f"{us / 1000:.{digits}f}ms"


VIEW: Final = View(
    name="sections",
    title="Sections",
    answer=answer,
    draw=draw,
    needs=frozenset({"table:event_types|table:event type summary"}),
    not_merged_because="printed sections cannot be summed",
    columns=("label", "count", "total_ns", "mean_ns", "p95_ns", "section"),
    row_key=(),
    tab="palette",
)
