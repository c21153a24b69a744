"""Summary: what ran, how fast, where the time went, and what this source cannot show."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import summary
from tracetui.analysis.energy import POWER_NEEDS, has_power
from tracetui.analysis.frames.display_names import select_display_names
from tracetui.analysis.frames.selection import name_work
from tracetui.analysis.key_facts import suggest_views
from tracetui.analysis.merged.partial_results import PartialResult
from tracetui.analysis.recording_advice import suggest_recording
from tracetui.analysis.time.steady import cut_to_steps
from tracetui.glyphs import count_cells, fit_cells
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, _category, find_missing_needs, ink, load_views
from tracetui.views.ink import DrawSize, Line

_TITLES: Final = {  # of the parts, from the top
    "outlier": "outlier files",
    "phase": "time by phase",
    "category": "time by category",
    "op": "time by op",
    "name": "top kernels",
    "run": "the run",
}
# parts that a small screen keeps longest come first
_PARTS_BY_WEIGHT: Final = ("category", "name", "outlier", "phase", "run", "op")
MAX_BARS: Final = 10
MIN_BARS: Final = 3
_WATCHED_NAMES: Final = ("server", "latency", "requests", "windows")  # of verdicts; they come first
_LANDING: Final = {"at": pl.Int64(), "column": pl.String(), "value": pl.String()}  # rows of suggestions
_NUMBERED_TABS: Final = 9
_PALETTE: Final = "Ctrl+P"
_INDENT: Final = "  "
_TILE_LEAST_CELLS: Final = 22  # narrower tiles are a sentence
_TILE: Final = re.compile(r"(.*?)\s*([\d.,]+(?:%| tok/s))(.*)")  # words, a figure, words
_RECORDING_HINT: Final = "; tracetui doctor FILE says what to record"
_HINT_LEAST_CELLS: Final = 70  # narrower screens name only what is missing


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return the key facts, suggestions, sums by phase, category, op and name, and missing views.

    Missing views come with what to record so that they work next time.
    """
    run = runs[0] if look.window is None else cut_to_steps(runs[0], *look.window)
    entries = suggest_views(run)
    looks = [{"part": "next", "name": entry.view, "text": entry.text} for entry in entries]
    landing = [(at, column, str(v)) for at, entry in enumerate(entries) for column, v in entry.row]
    table = summary.compute_summary_table(run, look)
    if (work := name_work(run)) != "kernel":
        is_name = pl.col("part") == "name"
        table = table.with_columns(text=pl.when(is_name).then(pl.lit(f"top {work}s")).otherwise("text"))
    is_verdict = pl.col("part") == "verdict"
    suggestions = pl.DataFrame(looks, schema=summary.SCHEMA)
    rows = [table.filter(is_verdict), suggestions, table.filter(~is_verdict), _build_missing_rows(run)]
    parts = _category.build_category_part([run], "op", "name")
    parts["landing"] = pl.DataFrame(landing, schema=_LANDING, orient="row")
    return Answer(pl.concat(rows), tuple(summary.note_summary(run, look)), ("name",), parts)


def _build_missing_rows(run: Run) -> pl.DataFrame:
    """Return the views that the source cannot feed, what they need, and how to record it; energy likewise."""
    lacks = [(v.name, needs) for v, needs in _list_missing_needs(run) if not _is_source_specific(v)]
    rows = [{"part": "unknown", "name": v, "text": f"needs {' and '.join(needs)}"} for v, needs in lacks]
    ways = suggest_recording(run, chain.from_iterable(needs for _, needs in lacks))
    split = (way.partition(": ") for way in ways)
    rows += [{"part": "record", "name": what, "text": how} for what, _, how in split]
    if not has_power(run):
        rows.append({"part": "unknown", "name": "energy", "text": f"needs {POWER_NEEDS}"})
    return pl.DataFrame(rows, schema=summary.SCHEMA)


def _list_missing_needs(run: Run) -> list[tuple[View, tuple[str, ...]]]:
    """Return the views that a run cannot feed, each with its unmet needs."""
    single_run_views = [v for v in load_views() if v.run_count == 1]
    return [(v, needs) for v in single_run_views if (needs := find_missing_needs(v, [run]))]


def compute_partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    """Return the part of one file for the summary, and for `doctor`, of many files."""
    kinds = {"view": pl.String, "needs": pl.String, "runs": pl.Int64}
    lacking = [(v.name, " and ".join(needs), 1) for v, needs in _list_missing_needs(run)]
    return {**summary.sum_summary(run, look), "lacking": pl.DataFrame(lacking, schema=kinds, orient="row")}


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the summary of many files."""
    runs, listed = merged.members.height, {v.name for v in load_views() if not _is_source_specific(v)}
    texts = [
        {"part": "unknown", "name": name, "text": f"needs {needs}{format_run_count(count, runs)}"}
        for name, needs, count in merged.frames["lacking"].select("view", "needs", "runs").rows()
        if name in listed
    ]
    rows = pl.concat([summary.build_merged_summary(merged), pl.DataFrame(texts, schema=summary.SCHEMA)])
    notes = ["times of all files are summed; outlier files are far from the median"]
    if look.merged:
        notes.append("facts are per file; --merge without --on shows those of the combined run")
    return Answer(rows, tuple(notes), key=("name",))


def format_run_count(count: int, runs: int) -> str:
    """Return ` (in 3 of 5 runs)`, or nothing for all runs."""
    return "" if count == runs else f" (in {count:,} of {runs:,} runs)"


def _is_source_specific(view: View) -> bool:
    """Whether only some sources can feed a view (tables, ranks, training), so that it is not missed."""
    tables = bool(view.needs) and all(need.startswith("table:") for need in view.needs)
    return tables or any(need.startswith(("several:", "phase:")) for need in view.needs)


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw the key facts, then bars part by part, then what is missing; a small screen gets fewer of them."""
    names = pl.col("name").replace(select_display_names(answer.rows, answer.names))
    rows = answer.rows.with_columns(names, style=pl.Series(_select_bar_styles(answer), dtype=pl.String))
    parts = {str(p): f for (p,), f in rows.group_by("part", maintain_order=True)}
    none = answer.rows.head(0)
    verdicts, suggestions = parts.pop("verdict", none), parts.pop("next", none)
    lines = _draw_first_lines(verdicts, suggestions, look.cursor[0], size)
    missing = _draw_missing_data(parts.pop("unknown"), size) if "unknown" in parts else []
    parts.pop("record", None)
    room = size.height - len(lines) - 2 * bool(missing)
    blocks = [*_select_fitting_blocks(parts, size, room), *([missing] if missing else [])]
    for block in blocks:
        lines += [ink.make_line()] * bool(lines) + block
    return ink.clip_lines(lines, size.with_height(len(lines)))


def _select_bar_styles(answer: Answer) -> list[str]:
    """Return the style of each row's bar: that of its category, if it has one."""
    categories = _category.find_categories(answer.parts, answer.rows["name"])
    return [
        _category.select_ink_style(name)
        if part == "category"
        else _category.select_name_style(category) or "series0"
        for part, name, category in zip(answer.rows["part"], answer.rows["name"], categories, strict=True)
    ]


def _select_fitting_blocks(parts: Mapping[str, pl.DataFrame], size: DrawSize, room: int) -> list[list[Line]]:
    """Return the parts that fit, with as many bars as fit."""
    chosen = [p for p in _PARTS_BY_WEIGHT if p in parts]
    while chosen:
        for bars in range(MAX_BARS, MIN_BARS - 1, -1):
            blocks = [_draw_block(p, parts[p], size.with_height(bars)) for p in _TITLES if p in chosen]
            if sum(1 + len(block) for block in blocks) <= room:
                return blocks
        chosen.pop()
    return []


def _draw_block(part: str, rows: pl.DataFrame, size: DrawSize) -> list[Line]:
    """Draw a part with its title, with at most `size.height` bars; a single row is a sentence."""
    own_title = str(rows["text"][0] or "") if part == "name" else ""
    title = own_title or _TITLES[part]
    head = ink.make_line((title, "title"))
    if part == "run":
        return [head, *_draw_facts(rows, size)]
    if part == "outlier":
        return [head, *_draw_texts(rows)]
    if rows.height == 1:
        name, total, share = rows.select("name", "total_ns", "share").row(0)
        what = f"{name} {units.format_duration(total)}" + (f" ({units.format_share(share)})" if share else "")
        return [ink.make_line((f"{title}: ", "title"), what)]
    return [head, *_draw_bars(rows, size)]


def _draw_facts(rows: pl.DataFrame, size: DrawSize) -> list[Line]:
    """Draw name and value, in two columns if there is room."""
    cells = list(zip(rows["name"].to_list(), rows["text"].to_list(), strict=True))
    across = 2 if size.width >= 80 and len(cells) > 4 else 1
    deep = -(-len(cells) // across)
    columns = [cells[i * deep : (i + 1) * deep] for i in range(across)]
    labels = [max((count_cells(name) for name, _ in column), default=0) for column in columns]
    texts = [max((count_cells(text) for _, text in column), default=0) for column in columns]
    room = size.width - sum(labels) - 2 * across
    widths = [room] if across == 1 else _split_width(room, *texts)
    lines = []
    for i in range(deep):
        spans = []
        for column, label, width in zip(columns, labels, widths, strict=True):
            for name, text in column[i : i + 1]:
                value = f" {fit_cells(text, width, ascii=size.ascii)} "
                spans += [(fit_cells(name, label), "dim"), (value, "")]
        lines.append(ink.make_line(*spans))
    return lines


def _split_width(room: int, left: int, right: int) -> list[int]:
    """Return the widths of two columns: halves, unless one needs more and the other leaves it."""
    half = room // 2
    first = max(half, room - right) if left > half else room - max(half, min(right, room - left))
    return [first, room - first]


def _draw_bars(rows: pl.DataFrame, size: DrawSize) -> list[Line]:
    names, totals, shares, styles = (rows[c].to_list() for c in ("name", "total_ns", "share", "style"))
    return ink.draw_bars(totals, names, size, units.format_duration, shares, styles)


def _draw_texts(rows: pl.DataFrame) -> list[Line]:
    width = max(count_cells(n) for n in rows["name"])
    named = zip(rows["name"], rows["text"], strict=True)
    return [ink.make_line((fit_cells(name, width), "dim"), f"  {text}") for name, text in named]


def _draw_first_lines(
    verdicts: pl.DataFrame, suggestions: pl.DataFrame, cursor: int, size: DrawSize
) -> list[Line]:
    """Draw what the run is, its figures as tiles, and what to look at next, wrapped."""
    texts = dict(verdicts.select("name", "text").iter_rows())

    def pick(*names: str) -> list[str]:
        return [texts[name] for name in names if name in texts]

    figures, limits = [*chain(*(text.split(", ") for text in pick("pace"))), *pick("device")], pick("bound")
    tiles = _draw_tiles(figures, size)
    words = [] if tiles else [", ".join(figures + limits)]
    lines = _wrap_bold([*pick(*_WATCHED_NAMES), ": ".join(pick("subject", "run")), *words], size)
    lines += [*tiles, *_wrap_bold(["; ".join(limits * bool(tiles) + pick("fit"))], size)]
    gap = [ink.make_line()] if lines and suggestions.height else []
    return [*lines, *gap, *_iter_suggestion_lines(suggestions, cursor, size)]


def _wrap_bold(sentences: Sequence[str], size: DrawSize) -> list[Line]:
    wide = max(size.width, len(_INDENT) + 1)
    wrapped = (textwrap.wrap(sentence, wide, subsequent_indent=_INDENT) for sentence in sentences)
    return [ink.make_line((part, "bold")) for part in chain(*wrapped)]


def _draw_tiles(figures: Sequence[str], size: DrawSize) -> list[Line]:
    """Draw each figure over its words, side by side; nothing for one figure, or with too little room."""
    parts = [_TILE.fullmatch(figure) for figure in figures]
    width = size.width // max(1, len(figures))
    if len(figures) < 2 or width < _TILE_LEAST_CELLS or not all(parts):
        return []
    split = [(part[2], f"{part[1]}{part[3]}".strip() or "decode speed") for part in parts if part]
    words = [textwrap.wrap(text, width - len(_INDENT)) for _, text in split]
    lines = [ink.make_line(*((fit_cells(value, width), "accent") for value, _ in split))]
    for row in zip_longest(*words, fillvalue=""):
        lines.append(ink.make_line(*((fit_cells(text, width), "dim") for text in row)))
    return lines


def _iter_suggestion_lines(suggestions: pl.DataFrame, cursor: int, size: DrawSize) -> Iterator[Line]:
    """Yield what to look at next: the key of the view, and what it shows; Enter opens that at the cursor."""
    keys = [_find_key(name, size) for name in suggestions["name"]]
    wide = max(map(len, keys), default=0)
    head = "next "
    room = max(8, size.width - len(head) - wide - 2)
    at_cursor = min(cursor, len(keys) - 1)
    for at, (key, text) in enumerate(zip(keys, suggestions["text"], strict=True)):
        for line, part in enumerate(textwrap.wrap(text, room)):
            lead = f"{'' if line else key:<{wide}}"
            spans = [(f"{lead}  {part}", "cursor")] if at == at_cursor else [(lead, "accent"), f"  {part}"]
            yield ink.make_line((head, "dim"), *spans)
            head = " " * len(head)


def find_suggestion(answer: Answer, look: Look) -> Focus:
    """Return the view that the suggestion under the cursor names, and the row there that it speaks of."""
    suggestions = answer.rows.filter(pl.col("part") == "next")
    if suggestions.is_empty():
        return ()
    at = max(0, min(look.cursor[0], suggestions.height - 1))
    rows = answer.parts["landing"].filter(pl.col("at") == at).select("column", "value").rows()
    return ("next", suggestions["name"][at]), *rows


def _find_key(name: str, size: DrawSize) -> str:
    """Return the key of a view: the user's, its own, or its tab number; in a report, its command."""
    if not size.keys:
        return f"report {name}"
    tabs = [v for v in load_views() if v.run_count == 1]
    position, view = next((number, v) for number, v in enumerate(tabs, 1) if v.name == name)
    key = dict(size.keys).get(name, view.shortcut)
    return key or (str(position) if position <= _NUMBERED_TABS else _PALETTE)


def _draw_missing_data(unknown: pl.DataFrame, size: DrawSize) -> list[Line]:
    """Draw the views that lack data in one line, as many as fit, and who says how to record it."""
    hint = _RECORDING_HINT if size.width >= _HINT_LEAST_CELLS else ""
    names = unknown["name"].to_list()
    rests = (f", +{len(names) - count}" * (count < len(names)) for count in range(len(names), 0, -1))
    texts = (f"not recorded: {', '.join(names[: len(names) - cut])}{rest}" for cut, rest in enumerate(rests))
    room = size.width - len(hint)
    text = next((text for text in texts if count_cells(text) <= room), f"not recorded: {len(names)} views")
    return [ink.make_line((text + hint, "dim"))]


VIEW = View(
    "summary",
    "Summary",
    answer,
    draw,
    row_key=("part", "name"),
    find_focus=find_suggestion,
    merging=Merging(compute_partial, summary.SHAPES, finish_answer),
)
