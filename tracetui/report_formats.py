"""Format the answer of a view as text, Markdown, CSV, JSON or a web page."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final

import polars as pl

from capture.errors import UsageError, suggest_nearest
from capture.load_runs import format_run_names
from capture.run import Run
from tracetui import glyphs, markdown, units
from tracetui.analysis.frames.display_names import select_display_names
from tracetui.analysis.frames.selection import compute_total_ns
from tracetui.glyphs import (
    NAME_COLUMNS,
    count_cells,
    fit_cells,
    fit_sentence,
    is_sentence,
)
from tracetui.look import Look
from tracetui.views import Answer, Source, View, ask, ink, list_heads, select_row_key, sort_answer
from tracetui.views.ink import Line, make_line

SCHEMA_NUMBER: Final = 1
UNCUT_LINE_CELLS: Final = 400  # cells of a leading note if lines are not cut
MIN_NAME_CELLS: Final = 14  # of a column of names, in the narrowest table


@dataclass(frozen=True, eq=False)
class ReportContent:
    """An answer and everything that a format needs to write it."""

    view: View
    runs: Sequence[Run]  # every run of the input
    answered_runs: Sequence[Run]  # those that the answer is about
    answer: Answer
    look: Look
    width: int = 120
    cut: bool = False  # cut tables to the width, because a terminal would fold their lines
    colours: bool = False  # colour tables and drawings, for a terminal


def format_report(
    view: View,
    sources: Sequence[Source],
    look: Look,
    format: str = "table",
    *,
    chosen: int = 0,
    width: int = 120,
    cut: bool = False,
) -> str:
    """Ask a view and return its answer in one of FORMATS.

    A view of one run takes the run at index `chosen`; of several runs a note names them.
    """
    content = ask_for_report(view, sources, look, chosen)
    return format_content(replace(content, width=width, cut=cut), format)


def ask_for_report(view: View, sources: Sequence[Source], look: Look, chosen: int = 0) -> ReportContent:
    """Ask a view; a view of one run takes the run at index `chosen`.

    `format_content` sorts later, so that --sort can name a column of this answer without asking again.
    """
    answering = sources if view.run_count > 1 else sources[chosen : chosen + 1]
    answer, runs = ask(view, answering, look), list_heads(sources)
    if len(runs) > len(answering):
        note = f"run {chosen + 1} of {len(runs)} ({format_run_names(runs)})"
        answer = replace(answer, notes=(note, *answer.notes))
    return ReportContent(view, runs, list_heads(answering), answer, look)


def format_content(content: ReportContent, format: str = "table") -> str:
    """Sort and limit the answer as its look says, and return it in one of FORMATS."""
    return FORMATS[format](replace(content, answer=sort_answer(content.answer, content.look)))


def format_json(content: ReportContent) -> str:
    """Return the answer as one line of ASCII: runs, import log, columns, rows and notes."""
    envelope = {
        "schema": SCHEMA_NUMBER,
        "view": content.view.name,
        "key": list(select_row_key(content.view, content.answer)),
        "runs": [describe_run(r, selected=r in content.answered_runs) for r in content.runs],
        "import": [r.log.as_dict() for r in content.runs],
        "columns": content.answer.rows.columns,
        "rows": replace_non_finite(content.answer.rows).to_dicts(),
        "notes": list(content.answer.notes),
    }
    return json.dumps(envelope, ensure_ascii=True, allow_nan=False, default=str)


def replace_non_finite(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with null for NaN and infinity, which JSON cannot hold."""
    floats = [c for c, t in rows.schema.items() if t.is_float()]
    return rows.with_columns(pl.when(pl.col(c).is_finite()).then(pl.col(c)).alias(c) for c in floats)


def describe_run(run: Run, *, selected: bool) -> dict[str, Any]:
    """Return the identity of a run: names, metadata, size."""
    metadata = ("model", "device", "dtype", "quant", "weights", "batch")
    return {
        "name": run.name,
        "source": run.log.source,
        "format": run.log.format,
        **{k: run.meta.get(k) for k in metadata},
        "events": run.events.height,
        "total_ns": compute_total_ns(run),
        "selected": selected,
    }


def format_csv(content: ReportContent) -> str:
    """Return a heading and the rows, without notes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_format_csv_cell, content.answer.rows.columns))
    writer.writerows([_format_csv_cell(v) for v in row] for row in content.answer.rows.iter_rows())
    return out.getvalue()


def _format_csv_cell(value: Any) -> Any:
    """Return a cell as text or number; an apostrophe in front keeps spreadsheets from seeing a formula."""
    if isinstance(value, list):
        text = " ".join("" if v is None else str(v) for v in value)
        return _format_csv_cell(text) if any(isinstance(v, str) for v in value) else text
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def format_markdown(content: ReportContent) -> str:
    """Return the view's document if DOCUMENTS has one, else a table and the notes as a list."""
    document = DOCUMENTS.get(content.view.name)
    if document is not None and not content.answer.missing:
        return document(content.answered_runs, content.look)
    rows = content.answer.rows
    runs = ", ".join(markdown.escape_text(r.name) for r in content.answered_runs)
    lines = [f"### {content.view.title}: {runs}", ""]
    if rows.columns:
        table = [[units.format_heading(c) for c in rows.columns], *_format_cells(rows, content.answer.names)]
        head, *body = (f"| {' | '.join(map(markdown.escape_text, cells))} |" for cells in table)
        rule = "|".join("--:" if kind.is_numeric() else ":--" for kind in rows.dtypes)
        lines += [head, f"|{rule}|", *body]
    notes = (f"- {markdown.escape_line(n)}" for n in content.answer.notes)
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def format_html(content: ReportContent) -> str:
    """Return a web page: the runs, the drawing, the rows to sort and search, the notes."""
    from tracetui.web_page import PageColumn, WebPage, format_web_page

    answer, rows = content.answer, content.answer.rows
    page = WebPage(
        title=f"{content.view.title}: {', '.join(run.name for run in content.answered_runs)}",
        facts=[(run.name, _describe_origin(run)) for run in content.answered_runs],
        lead=(*answer.doubts, *answer.notes[: answer.leading_notes]),
        drawing=ink.format_plain(_draw(content) or ()),
        columns=[
            PageColumn(c, units.format_heading(c), kind.is_numeric()) for c, kind in rows.schema.items()
        ],
        cells=_format_cells(rows, answer.names),
        values=replace_non_finite(rows).rows(),
        notes=answer.notes[answer.leading_notes :],
    )
    return format_web_page(page)


def _describe_origin(run: Run) -> str:
    """Return the model, device and source of a run, in one line; of a file its name, not its folder."""
    entry = describe_run(run, selected=True)
    entry["source"] = PurePath(run.log.source).name
    values = (entry[key] for key in ("model", "device", "dtype", "quant", "source", "format"))
    return " · ".join(str(value) for value in values if value is not None)


def _draw(content: ReportContent) -> Sequence[Line] | None:
    """Return the drawing of the answer; None if it is a table, or misses something."""
    draw = content.view.draw
    if draw is None or content.answer.missing:
        return None
    return draw(content.answer, content.look, ink.DrawSize(content.width, 40, colours=content.colours))


def format_table(content: ReportContent) -> str:
    """Return the drawing or the table as text, with the notes below."""
    answer, body = content.answer, _draw(content)
    lead, notes = answer.notes[: answer.leading_notes], list(answer.notes[answer.leading_notes :])
    if body is None:
        body, left_out = _lay_out_table(answer.rows, content)
        notes += [f"{left_out} more columns: --width 999, or --format csv"] if left_out else []
    width = content.width if content.cut else UNCUT_LINE_CELLS
    head = [
        make_line((part, "" if n else "bold"))  # the first note decides
        for n, note in enumerate(lead)
        for part in textwrap.wrap(note, width, subsequent_indent="    ")
    ]
    lines = [*head, (), *body] if head else list(body)
    lines += [make_line((f"note: {n}", "dim")) for n in notes]
    format_lines = ink.format_sgr if content.colours else ink.format_plain
    return format_lines(lines).strip("\n") + "\n"


def _lay_out_table(rows: pl.DataFrame, content: ReportContent) -> tuple[list[Line], int]:
    """Return the rows in columns, numbers to the right, and the number of columns left out."""
    if not rows.columns:
        return [], 0
    cells = [[units.format_heading(c) for c in rows.columns], *_format_cells(rows, content.answer.names)]
    widths = {c: max(count_cells(row[i]) for row in cells) for i, c in enumerate(rows.columns)}
    if content.cut:
        widths = _fit_widths(widths, rows, content)
    layout = [
        (i, widths[c], kind.is_numeric()) for i, (c, kind) in enumerate(rows.schema.items()) if c in widths
    ]
    styles = _select_styles(rows, content)
    lines = []
    for n, row in enumerate(cells):
        fitted = [(_fit_cell(row[i], width, right), styles[i][n]) for i, width, right in layout]
        lines.append(make_line(*(part for cell in fitted for part in (cell, "  "))))
    return lines, len(rows.columns) - len(widths)


def _select_styles(rows: pl.DataFrame, content: ReportContent) -> list[list[str]]:
    """Return the style of each cell of each column, its heading first."""
    style = content.answer.table_style or content.view.table_style
    styles = style.cell_styles(rows) if content.colours and style and rows.height else {}
    return [["bold", *styles.get(column, [""] * rows.height)] for column in rows.columns]


def _fit_cell(text: str, width: int, right: bool) -> str:
    return fit_sentence(text, width) if is_sentence(text) else fit_cells(text, width, right)


def _fit_widths(natural: Mapping[str, int], rows: pl.DataFrame, content: ReportContent) -> dict[str, int]:
    """Return the widths of the first column and of the most important others that fit; texts may be cut."""
    limit = max(MIN_NAME_CELLS, content.width // 4)
    texts = {rows.columns[0], *(c for c, t in rows.schema.items() if t in (pl.String, pl.Categorical))}
    widths = {c: min(w, limit) if c in texts else w for c, w in natural.items()}
    first, *others = widths
    ranked = [c for c in content.answer.columns or content.view.columns if c in others]
    room, fitting = content.width - widths[first], {first: widths[first]}
    for name in (*ranked, *(c for c in others if c not in ranked)):
        if room < widths[name] + 2:
            break
        room -= widths[name] + 2
        fitting[name] = widths[name]
    return _widen_cut(fitting, natural, room)


def _widen_cut(widths: Mapping[str, int], natural: Mapping[str, int], room: int) -> dict[str, int]:
    """Give remaining room to the columns that are cut, the last ones first: sentences stand there."""
    wider = dict(widths)
    for name in reversed(list(widths)):
        wider[name] = min(natural[name], widths[name] + room)
        room -= wider[name] - widths[name]
    return wider


def _format_cells(rows: pl.DataFrame, names: Mapping[str, str]) -> list[list[str]]:
    rows = _with_display_names(rows, names)
    return [[_format_cell(c, v) for c, v in zip(rows.columns, row, strict=True)] for row in rows.iter_rows()]


def _format_cell(column: str, value: Any) -> str:
    return glyphs.draw_sparkline(value, 20) if isinstance(value, list) else units.format_cell(column, value)


def _with_display_names(rows: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows with long kernel names shortened; different names stay different."""
    columns = [c for c in rows.columns if c in NAME_COLUMNS and rows.schema[c] in (pl.String, pl.Categorical)]
    rows = rows.with_columns(pl.col(columns).cast(pl.String))
    short = select_display_names(rows, names)
    return rows.with_columns(pl.col(columns).replace(short)) if short else rows


def _format_pull_request_comment(runs: Sequence[Run], look: Look) -> str:
    from tracetui.pr_comment import format_comment  # numpy and scipy load with it

    return format_comment(runs, look)


# Views whose Markdown is a document, not only their table.
DOCUMENTS: Final[Mapping[str, Callable[[Sequence[Run], Look], str]]] = {"diff": _format_pull_request_comment}

FORMATS: Final[Mapping[str, Callable[[ReportContent], str]]] = {
    "table": format_table,
    "json": format_json,
    "csv": format_csv,
    "md": format_markdown,
    "html": format_html,
}


def resolve_sort(look: Look, rows: pl.DataFrame, reverse: bool) -> Look:
    """Return the look with sort columns as the answer names them, numbers descending, text ascending.

    Raise UsageError if no column has such a name.
    """
    if not rows.columns:
        return replace(look, sort=None)
    names = (units.format_plain_heading, units.format_heading, str)
    named = {name(column): column for name in names for column in rows.columns}
    words, orders = look.sort or "", []
    for word in [words] if words in named else words.split(","):
        column = named.get(word.strip())
        if column is None:
            todo = suggest_nearest(word, named, f"the columns are {', '.join(rows.columns)}")
            raise UsageError(f"no column is called {word!r}", todo=todo)
        orders.append((column, rows.schema[column].is_numeric() != reverse))
    (first, falls), *then = orders
    return replace(look, sort=first, descending=falls, then=tuple(then))
