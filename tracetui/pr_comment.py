"""Format a comparison as a pull-request comment: the decision, and folded below it the evidence."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.selection import compute_total_ns
from tracetui.compare.diff import Diff, compare_runs
from tracetui.compare.words import decision
from tracetui.compare.words.decision import describe_decision
from tracetui.glyphs import format_display_name
from tracetui.look import Look
from tracetui.markdown import escape_line, escape_text, format_code
from tracetui.views import ask, ink, load_view
from tracetui.views.diff import MEDIAN_COLUMNS, build_titles

MAX_ROWS: Final = 12
MAX_FINDINGS: Final = 5
MAX_NAME_CHARS: Final = 60
BARS_SIZE: Final = ink.DrawSize(72, 5, colours=False)
ROW_COLUMNS: Final = (
    "name", "instead", "phase", "total_a_ns", "total_b_ns", "delta_ns", "change_pct", "verdict", "interval",
    "per", "p_adjusted", "cliff", "match",
)  # fmt: skip
TOTAL_COLUMNS: Final = ("total_a_ns", "total_b_ns", "delta_ns", "change_pct")
CHANGED_VERDICTS: Final = ("slower", "faster", "new", "gone")
META_KEYS: Final = ("model", "device", "dtype", "quant", "weights", "batch")


def format_comment(runs: Sequence[Run], look: Look) -> str:
    """Return the comment, most important first; the evidence is folded."""
    compared = compare_runs(runs, look)
    findings = ask(load_view("findings"), runs, look).rows["finding"].to_list()[:MAX_FINDINGS]
    causes = f"{_draw_waterfall(runs, look)}\n\n{_format_list(findings) or '- none'}"
    parts = [
        f"## {' → '.join(_format_name(t) for t in build_titles(*compared.sides))}",
        _format_decision(compared, look),
        _format_folded("Rows", _format_rows(runs, look)),
        _format_folded("Where the time went, and findings", causes),
        _format_folded("What was compared", _format_sides(compared)),
    ]
    return "\n\n".join(parts) + "\n"


def _format_folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _format_list(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {escape_line(sentence)}" for sentence in sentences)


def _format_table(lines: Iterable[Iterable[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_decision(compared: Diff, look: Look) -> str:
    """Return the phases with their verdicts, the rows behind them, and the counts of verdicts."""
    lines = [
        f"  - {escape_line(line.strip())}" if line.startswith(" ") else f"- **{escape_text(line)}**"
        for line in describe_decision(compared, look.terms)
    ]
    counts = ", ".join(decision.count_verdicts(compared)) or "no rows"
    before, after = (int(compared.rows[f"total_{side}_ns"].sum()) for side in "ab")
    change = f" ({units.format_change(100 * (after / before - 1))})" if before else ""
    totals = f"total kernel time {units.format_duration(before)} → {units.format_duration(after)}{change}"
    lines.append(f"- {counts} of {compared.rows.height} rows; {totals}")
    if not compared.comparability.ok:
        reasons = escape_text("; ".join(compared.comparability.reasons))
        lines.insert(0, f"- **Not comparable** ({compared.comparability.score:.2f}): {reasons}")
    return "\n".join(lines)


def _format_rows(runs: Sequence[Run], look: Look) -> str:
    """Return the rows that changed with evidence; all rows if there are no samples to judge."""
    answer = ask(load_view("diff"), runs, look)
    rows = answer.rows
    # the diff lists its columns only if medians come first: they replace the totals here, too
    replacements = dict(zip(TOTAL_COLUMNS, MEDIAN_COLUMNS, strict=True)) if answer.columns else {}
    if {"low_ns", "high_ns"} <= set(rows.columns):
        bounds = pl.struct("low_ns", "high_ns")
        rows = rows.with_columns(interval=bounds.map_elements(_format_interval, pl.String))
    names = [replacements.get(c, c) for c in ROW_COLUMNS]
    columns = [c for c in names if c in rows.columns and _is_informative(rows[c])]
    is_judged = "p_adjusted" in rows.columns and rows["p_adjusted"].null_count() < rows.height
    changed = rows.filter(pl.col("verdict").is_in(CHANGED_VERDICTS)) if is_judged else rows
    unchanged = rows.height - changed.height
    word = "row is" if unchanged == 1 else "rows are"
    unchanged_note = f"\n\n{unchanged} {word} the same or undecided." if unchanged else ""
    if not changed.height:
        return f"No row changed with evidence.{unchanged_note}"
    return f"{_format_rows_table(changed.select(columns), answer.names)}{unchanged_note}"


def _is_informative(values: pl.Series) -> bool:
    """Whether a column has values, and not the same word in every row."""
    is_constant = values.name in ("match", "phase", "per") and values.n_unique() == 1
    return values.null_count() < values.len() and not is_constant


def _format_interval(row: dict[str, Any]) -> str | None:
    low, high = row["low_ns"], row["high_ns"]
    return None if low is None else f"{units.format_difference(low)} … {units.format_difference(high)}"


def _format_rows_table(rows: pl.DataFrame, names: Mapping[str, str]) -> str:
    heads = ["95% interval" if c == "interval" else units.format_heading(c) for c in rows.columns]
    rule = ["--:" if rows.schema[c].is_numeric() else ":--" for c in rows.columns]
    lines = [heads, rule]
    for row in rows.head(MAX_ROWS).iter_rows(named=True):
        lines.append(
            [
                _format_name(names.get(str(v), str(v)))
                if c == "name"
                else escape_text(units.format_cell(c, v))
                for c, v in row.items()
            ]
        )
    cut = f"\n\n{MAX_ROWS} of {rows.height} rows." if rows.height > MAX_ROWS else ""
    return _format_table(lines) + cut


def _draw_waterfall(runs: Sequence[Run], look: Look) -> str:
    bars_view = load_view("waterfall")
    answer = ask(bars_view, runs, look)
    if bars_view.draw is None or answer.rows.is_empty():
        return "Nothing to split."
    drawn = ink.format_plain(bars_view.draw(answer, look, BARS_SIZE))
    return f"```text\n{drawn}\n```\n\n{escape_text(answer.notes[-1])}"


def _format_sides(compared: Diff) -> str:
    """Return both runs side by side, and the terms of the comparison."""
    runs = compared.sides
    lines = [["", "a", "b"], [":--", ":--", ":--"]]
    lines.append(["file", *(_format_name(PurePath(r.log.source).name) for r in runs)])
    lines.append(["format", *(r.log.format for r in runs)])
    for key in META_KEYS:
        if any(r.meta.get(key) is not None for r in runs):
            lines.append([key, *(escape_text(str(r.meta.get(key, units.ABSENT))) for r in runs)])
    lines.append(["kernel time", *(units.format_cell("total_ns", compute_total_ns(r)) for r in runs)])
    lines.append(["rows read", *(f"{r.log.read:,}, {r.log.dropped:,} dropped" for r in runs)])
    comparability = compared.comparability
    terms = [f"comparable: {comparability.score:.2f}", *comparability.reasons, *compared.notes]
    return f"{_format_table(lines)}\n\n{_format_list(terms)}"


def _format_name(text: str) -> str:
    """Return a name as short inline code."""
    name = format_display_name(text)
    if len(name) > MAX_NAME_CHARS:
        name = f"{name[: MAX_NAME_CHARS // 2]}…{name[-MAX_NAME_CHARS // 2 + 1 :]}"
    return format_code(name)
