"""Write any view without a terminal: as text, Markdown, CSV, JSON or a web page."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, markdown, units
from tracetui.analysis.select import total
from tracetui.look import Look
from tracetui.shown_names import COLUMNS, shown_names
from tracetui.views import Answer, View, ask, ink, ordered, row_key

SCHEMA: Final = 1
LINE: Final = 400  # cells of a leading note where lines are not cut
NAME_LEAST: Final = 14  # cells of a column of names, however narrow the table


@dataclass(frozen=True, eq=False)
class Report:
    """An answer and what a format needs to write it."""

    view: View
    runs: Sequence[Run]  # every run of the input
    asked: Sequence[Run]  # those that the answer speaks of
    answer: Answer
    look: Look
    width: int
    cut: bool = False  # keep a table within the width, where a terminal would fold its lines


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
    """Return the view's answer in one of FORMATS; a view of one run takes the run at place `chosen`."""
    asked = runs if view.runs > 1 else runs[chosen : chosen + 1]
    answer = ordered(ask(view, asked, look), look)
    if len(runs) > len(asked):
        names = ", ".join(f"{i}: {r.name}" for i, r in enumerate(runs, 1))
        answer = replace(answer, notes=(f"run {chosen + 1} of {len(runs)} ({names})", *answer.notes))
    return FORMATS[format](Report(view, runs, asked, answer, look, width, cut))


def written(
    view: View, run: Run, answer: Answer, look: Look, format: str = "table", *, width: int, cut: bool = False
) -> str:
    """Return an answer that was made already in one of FORMATS; the run stands for what was asked."""
    return FORMATS[format](Report(view, [run], [run], ordered(answer, look), look, width, cut))


def as_json(content: Report) -> str:
    """Return the envelope as one line of ASCII: runs, import log, columns, rows and notes."""
    envelope = {
        "schema": SCHEMA,
        "view": content.view.name,
        "key": list(row_key(content.view, content.answer)),
        "runs": [run_entry(r, selected=r in content.asked) for r in content.runs],
        "import": [r.log.as_dict() for r in content.runs],
        "columns": content.answer.rows.columns,
        "rows": finite(content.answer.rows).to_dicts(),
        "notes": list(content.answer.notes),
    }
    return json.dumps(envelope, ensure_ascii=True, allow_nan=False, default=str)


def finite(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with null for NaN and infinity, which JSON cannot hold."""
    floats = [c for c, t in rows.schema.items() if t.is_float()]
    return rows.with_columns(pl.when(pl.col(c).is_finite()).then(pl.col(c)).alias(c) for c in floats)


def run_entry(run: Run, *, selected: bool) -> dict[str, Any]:
    """Return what identifies a run: its names, its metadata, its size."""
    metadata = ("model", "device", "dtype", "quant", "weights", "batch")
    return {
        "name": run.name,
        "source": run.log.source,
        "format": run.log.format,
        **{k: run.meta.get(k) for k in metadata},
        "events": run.events.height,
        "total_ns": total(run),
        "selected": selected,
    }


def as_csv(content: Report) -> str:
    """Return a heading and the rows, without notes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_csv_cell, content.answer.rows.columns))
    writer.writerows([_csv_cell(v) for v in row] for row in content.answer.rows.iter_rows())
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a cell as text or number; a leading apostrophe keeps spreadsheets from reading a formula."""
    if isinstance(value, list):
        text = " ".join("" if v is None else str(v) for v in value)
        return _csv_cell(text) if any(isinstance(v, str) for v in value) else text
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def as_markdown(content: Report) -> str:
    """Return the view's document where DOCUMENTS has one, else a table and the notes as a list."""
    document = DOCUMENTS.get(content.view.name)
    if document is not None and not content.answer.missing:
        return document(content.asked, content.look)
    answer, columns = content.answer, content.answer.rows.columns
    runs = ", ".join(markdown.plain(r.name) for r in content.asked)
    lines = [f"### {content.view.title}: {runs}", ""]
    if columns:
        numeric = [answer.rows.schema[c].is_numeric() for c in columns]
        lines += [
            "| " + " | ".join(markdown.plain(units.heading(c)) for c in columns) + " |",
            "|" + "|".join("--:" if n else ":--" for n in numeric) + "|",
        ]
        lines += [f"| {' | '.join(map(markdown.plain, cells))} |" for cells in _cells(answer.rows)]
    return "\n".join([*lines, "", *(f"- {markdown.item(n)}" for n in answer.notes)]).rstrip() + "\n"


def as_html(content: Report) -> str:
    """Return one page for a browser: what ran, the drawing, the rows to sort and search, the notes."""
    from tracetui.web_page import Column, Page, web_page

    answer, rows, draw = content.answer, content.answer.rows, content.view.draw
    drawn = draw is not None and not answer.missing
    page = Page(
        title=f"{content.view.title}: {', '.join(run.name for run in content.asked)}",
        facts=[(run.name, _about(run)) for run in content.asked],
        lead=(*answer.doubts, *answer.notes[: answer.leading]),
        drawing=ink.plain(draw(answer, content.look, _paper(content))) if draw and drawn else "",
        columns=[Column(c, units.heading(c), kind.is_numeric()) for c, kind in rows.schema.items()],
        cells=_cells(rows),
        values=finite(rows).rows(),
        notes=answer.notes[answer.leading :],
    )
    return web_page(page)


def _about(run: Run) -> str:
    """Return what a run is and where it came from, in one line."""
    entry = run_entry(run, selected=True)
    told = (entry[key] for key in ("model", "device", "dtype", "quant", "source", "format"))
    return " · ".join(str(value) for value in told if value is not None)


def _paper(content: Report) -> ink.Size:
    """Return what a drawing may fill that is printed without colours."""
    return ink.Size(content.width, 40, colours=False)


def as_table(content: Report) -> str:
    """Return the drawing or the table as plain text, with the notes below."""
    answer, draw = content.answer, content.view.draw
    lead, notes = list(answer.notes[: answer.leading]), list(answer.notes[answer.leading :])
    if draw is not None and not answer.missing:
        body = ink.plain(draw(answer, content.look, _paper(content)))
    else:
        body, left_out = _text_table(answer.rows, content)
        notes += [f"{left_out} more columns: --width 999, or --format csv"] if left_out else []
    width = content.width if content.cut else LINE
    head = [part for n in lead for part in textwrap.wrap(n, width, subsequent_indent="    ")]
    head += [""] if head else []
    return "\n".join([*head, body, *(f"note: {n}" for n in notes)]).strip("\n") + "\n"


def _text_table(rows: pl.DataFrame, content: Report) -> tuple[str, int]:
    """Return the rows as aligned text, numbers to the right, and how many columns had no room."""
    if not rows.columns:
        return "", 0
    cells = [[units.heading(c) for c in rows.columns], *_cells(rows)]
    widths = {c: max(len(row[i]) for row in cells) for i, c in enumerate(rows.columns)}
    if content.cut:
        texts = {
            rows.columns[0],
            *(c for c, kind in rows.schema.items() if kind in (pl.String, pl.Categorical)),
        }
        most = max(NAME_LEAST, content.width // 4)
        widths = {c: min(w, most) if c in texts else w for c, w in widths.items()}
    shown = _fitting_columns(widths, content) if content.cut else set(rows.columns)
    lines = ("  ".join(_aligned_cells(row, rows, widths, shown)).rstrip() for row in cells)
    return "\n".join(lines), len(rows.columns) - len(shown)


def _aligned_cells(
    row: Sequence[str], rows: pl.DataFrame, widths: Mapping[str, int], shown: set[str]
) -> Iterator[str]:
    """Yield the cells of the columns shown, each padded or cut to its width."""
    for cell, (name, kind) in zip(row, rows.schema.items(), strict=True):
        if name in shown:
            text = ink.fit(cell, widths[name]) if len(cell) > widths[name] else cell
            yield text.rjust(widths[name]) if kind.is_numeric() else text.ljust(widths[name])


def _fitting_columns(widths: Mapping[str, int], content: Report) -> set[str]:
    """Return the first column and the most important others that fit beside it."""
    rank = content.answer.columns or content.view.columns
    first, *others = widths
    ranked = [c for c in rank if c in others]
    room, shown = content.width - widths[first], {first}
    for name in (*ranked, *(c for c in others if c not in ranked)):
        room -= widths[name] + 2
        if room < 0:
            break
        shown.add(name)
    return shown


def _cells(rows: pl.DataFrame) -> list[list[str]]:
    """Return every value as it is written."""
    rows, out = _with_shown_names(rows), []
    for row in rows.iter_rows():
        cells = zip(rows.columns, row, strict=True)
        out.append([glyphs.sparkline(v, 20) if isinstance(v, list) else units.cell(c, v) for c, v in cells])
    return out


def _with_shown_names(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with long names of kernels as they are shown; different names never look alike."""
    columns = [c for c in rows.columns if c in COLUMNS and rows.schema[c] in (pl.String, pl.Categorical)]
    rows = rows.with_columns(pl.col(columns).cast(pl.String))
    shown = shown_names(name for c in columns for name in rows[c].unique(maintain_order=True).drop_nulls())
    return rows.with_columns(pl.col(columns).replace(shown)) if shown else rows


def _pull_request_comment(runs: Sequence[Run], look: Look) -> str:
    from tracetui.pr_comment import comment  # numpy and scipy load with it

    return comment(runs[0], runs[1], look)


# Views whose Markdown is more than their table, by name.
DOCUMENTS: Final[Mapping[str, Callable[[Sequence[Run], Look], str]]] = {"diff": _pull_request_comment}

Formatter = Callable[[Report], str]
FORMATS: Final[Mapping[str, Formatter]] = {
    "table": as_table,
    "json": as_json,
    "csv": as_csv,
    "md": as_markdown,
    "html": as_html,
}
