"""The sections of metallic's own report, from its recording or as they were printed."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis import sections as analysis
from tracetui.analysis.matching import fitting
from tracetui.analysis.sections import Section
from tracetui.look import Look
from tracetui.views import Answer, View
from tracetui.views.ink import Line, Size, line

_STATISTICS: Final = ("total", "mean", "min", "max", "p95", "p99")
_SCHEMA: Final = {
    "section": pl.String,
    "label": pl.String,
    "under": pl.String,
    "count": pl.Int64,
    **{f"{c}_ns": pl.Int64 for c in _STATISTICS},
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a line of the report, with the report as text among the parts."""
    run = runs[0]
    sections = _sections(run, look)
    if not sections:
        nothing = pl.DataFrame({"line": []}, schema={"line": pl.String})
        return Answer(pl.DataFrame(), ("nothing matches this filter",), parts={"text": nothing})
    lines = [*_head(run), *(ln for section in sections for ln in _lines(section))]
    return Answer(
        pl.concat([_rows(section) for section in sections]),
        key=("section", "label"),
        parts={"text": pl.DataFrame({"line": lines})},
    )


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw the report as the analyzer prints it."""
    return [line((text, "title" if text[:1].strip() else "")) for text in answer.parts["text"]["line"]]


def _sections(run: Run, look: Look) -> list[Section]:
    if "names" in run.tables and "event_types" in run.tables:
        all_sections = analysis.sections(run)
    else:
        all_sections = analysis.printed(run.tables)
    if not look.filter:
        return all_sections
    kept = [Section(s.title, _matching(s.rows, look.filter)) for s in all_sections]
    return [s for s in kept if s.rows.height]


def _matching(rows: pl.DataFrame, pattern: str) -> pl.DataFrame:
    return rows.filter(fitting(rows["label"], pattern))


def _rows(section: Section) -> pl.DataFrame:
    """Return a section in the columns of the answer, in whole nanoseconds."""
    rows = section.rows
    have = [c for c in _STATISTICS if c in rows.columns]
    rows = rows.select(
        *(c for c in ("label", "under", "count") if c in rows.columns),
        *((pl.col(c) * 1000).round().cast(pl.Int64).alias(f"{c}_ns") for c in have),
        section=pl.lit(section.title),
    )
    lacking = {c: pl.lit(None, t).alias(c) for c, t in _SCHEMA.items() if c not in rows.columns}
    return rows.with_columns(lacking.values()).select(*_SCHEMA)


def _head(run: Run) -> Iterator[str]:
    types = run.tables.get("event_types")
    events = types["count"].sum() if types is not None else run.meta.get("event_count")
    yield f"=== Analyzing {run.meta.get('recording', run.log.source)} ==="
    yield f"Total events: {events}"


def _lines(section: Section) -> Iterator[str]:
    yield ""
    yield f"{section.title}:"
    under = None
    for row in section.rows.iter_rows(named=True):
        if row.get("under") != under:
            under = row["under"]
            yield f"  {under}:"
        yield f"  {'  ' if under else ''}{row['label']}: {_figures(row)}"


def _figures(row: dict[str, Any]) -> str:
    """Write a row's statistics as the analyzer does: milliseconds, the total with two decimals."""
    if row.get("count") is None:
        return "no samples"
    if row.get("total") is None:
        return f"count={row['count']}"
    total, mean, least, most, p95, p99 = (_ms(row.get(c), 2 if c == "total" else 3) for c in _STATISTICS)
    return (
        f"count={row['count']} | total={total} | avg={mean} | min={least} | max={most} | "
        f"p95_ms={p95}, p99_ms={p99}"
    )


def _ms(us: float | None, digits: int) -> str:
    """Write microseconds as milliseconds; a dash where the source left them out."""
    return "–" if us is None else f"{us / 1000:.{digits}f}ms"


VIEW: Final = View(
    name="sections",
    title="Sections",
    answer=answer,
    draw=draw,
    needs=frozenset({"table:event_types|table:event type summary"}),
    alone="what a source has printed is not added up",
    columns=("label", "count", "total_ns", "mean_ns", "p95_ns", "section"),
    row_key=(),
)
