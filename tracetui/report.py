"""Any view without a terminal: text, Markdown, CSV, JSON."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.select import total
from tracetui.look import Look
from tracetui.views import Answer, View, ask, ink, ordered

SCHEMA: Final = 1
NAME_LEAST: Final = 14  # cells of the first column, however narrow the table


@dataclass(frozen=True, eq=False)
class Report:
    """An answer and all that a format may say about it."""

    view: View
    runs: Sequence[Run]  # every run of the input
    asked: Sequence[Run]  # those that the answer speaks of
    answer: Answer
    look: Look
    width: int
    cut: bool = False  # a table to what fits, where a terminal would fold its lines


def report(
    view: View,
    runs: Sequence[Run],
    look: Look,
    format: str = "table",
    *,
    chosen: int = 0,
    width: int = 120,
    cut: bool = False,
) -> str:
    """The view's answer in one of the formats; a view of one run takes the chosen one."""
    asked = runs if view.runs > 1 else runs[chosen : chosen + 1]
    answer = ordered(ask(view, asked, look), look)
    if len(runs) > len(asked):
        names = ", ".join(f"{i}: {r.name}" for i, r in enumerate(runs, 1))
        answer = replace(answer, notes=(f"run {chosen + 1} of {len(runs)} ({names})", *answer.notes))
    return FORMATS[format](Report(view, runs, asked, answer, look, width, cut))


def as_json(told: Report) -> str:
    envelope = {
        "schema": SCHEMA,
        "view": told.view.name,
        "runs": [run_entry(r, selected=r in told.asked) for r in told.runs],
        "import": [r.log.as_dict() for r in told.runs],
        "columns": told.answer.rows.columns,
        "rows": _finite(told.answer.rows).to_dicts(),
        "notes": list(told.answer.notes),
    }
    return json.dumps(envelope, ensure_ascii=True, allow_nan=False, default=str)


def _finite(rows: pl.DataFrame) -> pl.DataFrame:
    """JSON knows no NaN and no infinity: they become null."""
    floats = [c for c, t in rows.schema.items() if t.is_float()]
    return rows.with_columns(pl.when(pl.col(c).is_finite()).then(pl.col(c)).alias(c) for c in floats)


def run_entry(run: Run, *, selected: bool) -> dict[str, Any]:
    """What a reader needs to know a run by."""
    known = ("model", "device", "dtype", "quant", "weights", "batch")
    return {
        "name": run.name,
        "source": run.log.source,
        "format": run.log.format,
        **{k: run.meta.get(k) for k in known},
        "events": run.events.height,
        "total_ns": total(run),
        "selected": selected,
    }


def as_csv(told: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(told.answer.rows.columns)
    writer.writerows([_csv_cell(v) for v in row] for row in told.answer.rows.iter_rows())
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, list):
        return " ".join("" if v is None else str(v) for v in value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def as_markdown(told: Report) -> str:
    if told.view.document is not None and not told.answer.missing:
        return told.view.document(told.asked, told.look)
    answer, columns = told.answer, told.answer.rows.columns
    lines = [f"### {told.view.title}: {', '.join(r.name for r in told.asked)}", ""]
    if columns:
        numeric = [answer.rows.schema[c].is_numeric() for c in columns]
        lines += [
            "| " + " | ".join(units.heading(c) for c in columns) + " |",
            "|" + "|".join("--:" if n else ":--" for n in numeric) + "|",
        ]
        lines += ["| " + " | ".join(cells) + " |" for cells in _cells(answer.rows, escape=True)]
    return "\n".join([*lines, "", *(f"- {n}" for n in answer.notes)]).rstrip() + "\n"


def as_table(told: Report) -> str:
    """What the pane shows, as text."""
    answer, draw, notes = told.answer, told.view.draw, list(told.answer.notes)
    if draw is not None and not answer.missing:
        body = ink.plain(draw(answer, told.look, ink.Size(told.width, 40)))
    else:
        body, left_out = _columns(answer.rows, told)
        notes += [f"{left_out} more columns: --width 999, or --format csv"] if left_out else []
    return "\n".join([body, *(f"note: {n}" for n in notes)]).strip("\n") + "\n"


def _columns(rows: pl.DataFrame, told: Report) -> tuple[str, int]:
    """Columns wide enough for all they hold, numbers to the right; and how many had no room."""
    if not rows.columns:
        return "", 0
    cells = [[units.heading(c) for c in rows.columns], *_cells(rows)]
    widths = {c: max(len(row[i]) for row in cells) for i, c in enumerate(rows.columns)}
    if told.cut:
        widths[rows.columns[0]] = min(widths[rows.columns[0]], max(NAME_LEAST, told.width // 4))
    shown = _fitting(widths, told) if told.cut else set(rows.columns)
    lines = ("  ".join(_aligned(row, rows, widths, shown)).rstrip() for row in cells)
    return "\n".join(lines), len(rows.columns) - len(shown)


def _aligned(
    row: Sequence[str], rows: pl.DataFrame, widths: Mapping[str, int], shown: set[str]
) -> Iterator[str]:
    for cell, (name, kind) in zip(row, rows.schema.items(), strict=True):
        if name in shown:
            text = ink.fit(cell, widths[name]) if len(cell) > widths[name] else cell
            yield text.rjust(widths[name]) if kind.is_numeric() else text.ljust(widths[name])


def _fitting(widths: Mapping[str, int], told: Report) -> set[str]:
    """The first column, then the most important ones, as long as they fit."""
    rank = told.answer.columns or told.view.columns
    first, *others = widths
    known = [c for c in rank if c in others]
    room, shown = told.width - widths[first], {first}
    for name in (*known, *(c for c in others if c not in known)):
        room -= widths[name] + 2
        if room < 0:
            break
        shown.add(name)
    return shown


def _cells(rows: pl.DataFrame, escape: bool = False) -> list[list[str]]:
    out = []
    for row in rows.iter_rows():
        cells = [
            ink.sparkline(v, 20) if isinstance(v, list) else units.cell(c, v)
            for c, v in zip(rows.columns, row, strict=True)
        ]
        out.append([c.replace("|", "\\|") for c in cells] if escape else cells)
    return out


Formatter = Callable[[Report], str]
FORMATS: Final[Mapping[str, Formatter]] = {
    "table": as_table,
    "json": as_json,
    "csv": as_csv,
    "md": as_markdown,
}
