"""Write a comparison as a comment for a pull request: the decision, and folded below it what it rests on."""

from pathlib import PurePath
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.compare import headline
from tracetui.analysis.compare.decision import sentences
from tracetui.analysis.compare.diff import Diff, diff
from tracetui.analysis.select import total
from tracetui.look import Look
from tracetui.markdown import code, item, plain
from tracetui.shown_names import shown_name
from tracetui.views import ask, ink, view
from tracetui.views.diff import MIDDLE, titles

MOST_ROWS: Final = 12
MOST_FINDINGS: Final = 5
LONGEST: Final = 60  # letters of a name
BARS: Final = ink.Size(72, 6, colours=False)
COLUMNS: Final = (
    "name",
    "phase",
    "total_a_ns",
    "total_b_ns",
    "delta_ns",
    "change_pct",
    "verdict",
    "interval",
    "per",
    "p_adjusted",
    "cliff",
    "match",
)
TOTALS: Final = ("total_a_ns", "total_b_ns", "delta_ns", "change_pct")
CHANGED: Final = ("slower", "faster", "new", "gone")
META: Final = ("model", "device", "dtype", "quant", "weights", "batch")


def comment(a: Run, b: Run, look: Look) -> str:
    """Return what a reader of the pull request has to know, the most important first; the rest is folded."""
    compared = diff(a, b, look)
    parts = [
        f"## {' → '.join(_code(t) for t in titles(a, b))}",
        _decision(compared, look),
        _folded("Rows", _rows(a, b, look)),
        _folded("Where the time went, and findings", f"{_waterfall(a, b, look)}\n\n{_findings(a, b, look)}"),
        _folded("What was compared", _compared(a, b, compared)),
    ]
    return "\n\n".join(parts) + "\n"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _decision(compared: Diff, look: Look) -> str:
    """Return the phases with their verdicts, what carries them, and the counts of verdicts."""
    lines = [
        f"  - {item(line.strip())}" if line.startswith(" ") else f"- **{plain(line)}**"
        for line in sentences(compared, look.terms)
    ]
    counts = ", ".join(headline.counts(compared)) or "no rows"
    before, after = (int(compared.rows[f"total_{side}_ns"].sum()) for side in "ab")
    change = f" ({units.change(100 * (after / before - 1))})" if before else ""
    whole = f"kernel time in all {units.duration(before)} → {units.duration(after)}{change}"
    lines.append(f"- {counts} of {compared.rows.height} rows; {whole}")
    if not compared.comparable.ok:
        reasons = plain("; ".join(compared.comparable.reasons))
        lines.insert(0, f"- **Not comparable** ({compared.comparable.score:.2f}): {reasons}")
    return "\n".join(lines)


def _rows(a: Run, b: Run, look: Look) -> str:
    """Return what changed with evidence; without samples, all that is known."""
    answer = ask(view("diff"), (a, b), look)
    rows, instead = answer.rows, dict(zip(TOTALS, MIDDLE, strict=True)) if answer.columns else {}
    if {"low_ns", "high_ns"} <= set(rows.columns):
        bounds = pl.struct("low_ns", "high_ns")
        rows = rows.with_columns(interval=bounds.map_elements(_interval, pl.String))
    wanted = [instead.get(c, c) for c in COLUMNS]
    columns = [c for c in wanted if c in rows.columns and _worth(rows[c])]
    judged = "p_adjusted" in rows.columns and rows["p_adjusted"].null_count() < rows.height
    first = pl.col("verdict").is_in(CHANGED) if judged else pl.lit(True)
    changed = rows.filter(first)
    left = rows.height - changed.height
    word = "row is" if left == 1 else "rows are"
    others = f"\n\n{left} {word} the same or undecided." if left else ""
    if not changed.height:
        return f"No row changed with evidence.{others}"
    return f"{_table(changed.select(columns))}{others}"


def _worth(values: pl.Series) -> bool:
    """Tell whether a column says anything: one that says the same of every row does not."""
    alike = values.name in ("match", "phase", "per") and values.n_unique() == 1
    return values.null_count() < values.len() and not alike


def _interval(row: dict[str, Any]) -> str | None:
    low, high = row["low_ns"], row["high_ns"]
    return None if low is None else f"{units.difference(low)} … {units.difference(high)}"


def _table(rows: pl.DataFrame) -> str:
    heads = ["95% interval" if c == "interval" else units.heading(c) for c in rows.columns]
    rule = ["--:" if rows.schema[c].is_numeric() else ":--" for c in rows.columns]
    lines = [heads, rule, *([_cell(c, v) for c, v in row.items()] for row in rows.head(MOST_ROWS).to_dicts())]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    cut = f"\n\n{MOST_ROWS} of {rows.height} rows." if rows.height > MOST_ROWS else ""
    return table + cut


def _cell(column: str, value: Any) -> str:
    return _code(str(value)) if column == "name" else plain(units.cell(column, value))


def _waterfall(a: Run, b: Run, look: Look) -> str:
    """Return the bars as preformatted text."""
    asked = view("waterfall")
    answer = ask(asked, (a, b), look)
    if asked.draw is None or answer.rows.is_empty():
        return "Nothing to split."
    drawn = ink.plain(asked.draw(answer, look, BARS))
    return f"```text\n{drawn}\n```\n\n{plain(answer.notes[-1])}"


def _findings(a: Run, b: Run, look: Look) -> str:
    told = ask(view("findings"), (a, b), look).rows["finding"].to_list()[:MOST_FINDINGS]
    return "\n".join(f"- {item(s)}" for s in told) or "- none"


def _compared(a: Run, b: Run, compared: Diff) -> str:
    """Return both runs side by side, and on what terms."""
    lines = [["", "a", "b"], [":--", ":--", ":--"]]
    lines.append(["file", *(_code(PurePath(r.log.source).name) for r in (a, b))])
    lines.append(["format", *(r.log.format for r in (a, b))])
    for key in META:
        if any(r.meta.get(key) is not None for r in (a, b)):
            lines.append([key, *(plain(str(r.meta.get(key, units.ABSENT))) for r in (a, b))])
    lines.append(["kernel time", *(units.cell("total_ns", total(r)) for r in (a, b))])
    lines.append(["rows read", *(f"{r.log.read:,}, {r.log.dropped:,} dropped" for r in (a, b))])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{_terms(compared)}"


def _terms(compared: Diff) -> str:
    terms = [f"comparable: {compared.comparable.score:.2f}", *compared.comparable.reasons, *compared.how]
    return "\n".join(f"- {item(t)}" for t in terms)


def _code(text: str) -> str:
    """Return a name as code, short, with no character that means anything to Markdown."""
    name = shown_name(text)
    if len(name) > LONGEST:
        name = f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 + 1 :]}"
    return code(name)
