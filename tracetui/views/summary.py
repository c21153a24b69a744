"""Summary: what ran, how fast, where the time went, and what this source cannot tell."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.advice import next_time
from tracetui.analysis.next_looks import next_looks
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.summary import SHAPES, merged_summary, partial
from tracetui.analysis.summary import SCHEMA, scope, summary_table
from tracetui.look import Look
from tracetui.shown_names import shown_names
from tracetui.views import Answer, Merging, View, _category, ink, missing, views
from tracetui.views._first_lines import first_lines, untold, untold_in_short
from tracetui.views.ink import Line, Size

_TITLES: Final = {  # of the parts, in their order from the top
    "outlier": "files unlike the others",
    "phase": "time by phase",
    "category": "time by category",
    "op": "time by op",
    "name": "top kernels",
    "run": "the run",
    "unknown": "what this source cannot tell",
}
# what a small screen keeps longest
_BY_WEIGHT: Final = ("category", "name", "outlier", "phase", "run", "unknown", "op")
MOST_BARS: Final = 10
FEWEST_BARS: Final = 3


def summary(runs: Sequence[Run], look: Look) -> Answer:
    """Return what to know first and to look at next, facts as text, sums by phase, category, op and name, and
    the views that cannot be fed, with what to record so that they can.
    """
    run = runs[0]
    looks = [{"part": "next", "name": each.view, "text": each.text} for each in next_looks(run)]
    table = summary_table(run, look)
    first = table.filter(pl.col("part") == "verdict")
    rows = [first, pl.DataFrame(looks, schema=SCHEMA), table.filter(pl.col("part") != "verdict")]
    parts = _category.known([run], "op", "name")
    return Answer(pl.concat([*rows, _unknown(run)]), tuple(scope(run, look)), ("name",), parts)


def _unknown(run: Run) -> pl.DataFrame:
    """Return the views that the source cannot feed, each with what is missing, and how to record it."""
    lacks = [(v.name, needs) for v, needs in _lacking(run) if not _of_some_sources(v)]
    rows = [{"part": "unknown", "name": v, "text": f"needs {' and '.join(needs)}"} for v, needs in lacks]
    ways = next_time(run, chain.from_iterable(needs for _, needs in lacks))
    split = (way.partition(": ") for way in ways)
    rows += [{"part": "record", "name": what, "text": how} for what, _, how in split]
    return pl.DataFrame(rows, schema=SCHEMA)


def _lacking(run: Run) -> list[tuple[View, tuple[str, ...]]]:
    """Return the views that a run cannot feed, each with what is missing."""
    asked = [v for v in views() if v.runs == 1]
    return [(v, needs) for v in asked if (needs := missing(v, [run]))]


def contribution(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    """Return what a run contributes to a summary of many, and to what a doctor says of them."""
    kinds = {"view": pl.String, "needs": pl.String, "runs": pl.Int64}
    lacking = [(v.name, " and ".join(needs), 1) for v, needs in _lacking(run)]
    return {**partial(run, look), "lacking": pl.DataFrame(lacking, schema=kinds, orient="row")}


def of_many(whole: Partial, look: Look) -> Answer:
    """Return the summary of many files."""
    runs, kept = whole.members.height, {v.name for v in views() if not _of_some_sources(v)}
    texts = [
        {"part": "unknown", "name": name, "text": f"needs {needs}{of_runs(count, runs)}"}
        for name, needs, count in whole.frames["lacking"].select("view", "needs", "runs").rows()
        if name in kept
    ]
    rows = pl.concat([merged_summary(whole, look), pl.DataFrame(texts, schema=SCHEMA)])
    notes = ["times of all files are added; a file stands out where its time lies far from the median"]
    if look.merged:
        notes.append("facts are of the files; --merge without --on has those of the run that they make")
    return Answer(rows, tuple(notes), key=("name",))


def of_runs(count: int, runs: int) -> str:
    """Return of how many runs something holds, in words; nothing where it holds of all."""
    return "" if count == runs else f" (in {count:,} of {runs:,} runs)"


def _of_some_sources(view: View) -> bool:
    """Tell whether a view is for some sources alone, and is not missed in others: tables, ranks, training."""
    tables = bool(view.needs) and all(need.startswith("table:") for need in view.needs)
    return tables or any(need.startswith(("several:", "phase:")) for need in view.needs)


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw what to know first, then bars part by part; a small screen gets fewer bars and parts.

    What cannot be told stands below all that fits, where it has no room at length.
    """
    rows = answer.rows.with_columns(style=pl.Series(_styles(answer), dtype=pl.String))
    parts = {str(p): f for (p,), f in rows.group_by("part", maintain_order=True)}
    none = answer.rows.head(0)
    lines = first_lines(parts.pop("verdict", none), parts.pop("next", none), size)
    ways = parts.pop("record", none)
    short = untold_in_short(parts["unknown"], size) if "unknown" in parts else []
    blocks = _fitting(parts, ways, size, size.height - len(lines), short)
    if "unknown" in parts:
        whole = _block("unknown", parts["unknown"], ways, size)
        blocks += [whole] * (whole not in blocks)
    for block in blocks:
        lines += [ink.line()] * bool(lines) + block
    return ink.clip(lines, replace(size, height=len(lines)))


def _styles(answer: Answer) -> list[str]:
    """Return the style of the bar of each row: that of its category, where it is of one."""
    known = _category.of_values(answer.parts, answer.rows["name"])
    return [
        _category.inked(name) if part == "category" else _category.toned(category) or "series0"
        for part, name, category in zip(answer.rows["part"], answer.rows["name"], known, strict=True)
    ]


def _fitting(
    parts: Mapping[str, pl.DataFrame], ways: pl.DataFrame, size: Size, room: int, short: list[Line]
) -> list[list[Line]]:
    """Return the parts that fit, with as many bars as fit; `short` stands for what cannot be told, where
    that has no room at length.
    """
    chosen = [p for p in _BY_WEIGHT if p in parts]
    while chosen:
        for most in range(MOST_BARS, FEWEST_BARS - 1, -1):
            shown = [_block(p, parts[p], ways, replace(size, height=most)) for p in _TITLES if p in chosen]
            shown += [short] if short and "unknown" not in chosen else []
            if sum(1 + len(block) for block in shown) <= room:
                return shown
        chosen.pop()
    return [short] if short else []


def _block(part: str, rows: pl.DataFrame, ways: pl.DataFrame, size: Size) -> list[Line]:
    """Return a part with its title; `size` has as many lines as there may be bars."""
    title = ink.line((_TITLES[part], "title"))
    if part == "run":
        return [title, *_facts(rows, size)]
    if part == "unknown":
        return [title, *untold(rows, ways, size)]
    return [title, *(_texts(rows) if part == "outlier" else _bars(rows, size))]


def _facts(rows: pl.DataFrame, size: Size) -> list[Line]:
    """Return lines of name and value, in two columns where there is room."""
    cells = list(zip(rows["name"].to_list(), rows["text"].to_list(), strict=True))
    across = 2 if size.width >= 80 and len(cells) > 4 else 1
    deep = -(-len(cells) // across)
    columns = [cells[i * deep : (i + 1) * deep] for i in range(across)]
    labels = [max((ink.wide(name) for name, _ in column), default=0) for column in columns]
    texts = [max((ink.wide(text) for _, text in column), default=0) for column in columns]
    room = size.width - sum(labels) - 2 * across
    widths = [room] if across == 1 else _shared_room(room, *texts)
    lines = []
    for i in range(deep):
        spans = []
        for column, label, width in zip(columns, labels, widths, strict=True):
            for name, text in column[i : i + 1]:
                spans += [(ink.fit(name, label), "dim"), (f" {ink.fit(text, width, ascii=size.ascii)} ", "")]
        lines.append(ink.line(*spans))
    return lines


def _shared_room(room: int, left: int, right: int) -> list[int]:
    """Return the widths of two columns: halves, where each has what it needs or needs more than the other
    leaves.
    """
    half = room // 2
    first = max(half, room - right) if left > half else room - max(half, min(right, room - left))
    return [first, room - first]


def _bars(rows: pl.DataFrame, size: Size) -> list[Line]:
    names, totals, shares, styles = (rows[c].to_list() for c in ("name", "total_ns", "share", "style"))
    shown = shown_names(name for name in names if name)
    labels = [shown.get(name, name) for name in names]
    return ink.bars(totals, labels, size, units.duration, shares, styles)


def _texts(rows: pl.DataFrame) -> list[Line]:
    width = max(ink.wide(n) for n in rows["name"])
    return [
        ink.line((ink.fit(n, width), "dim"), f"  {t}")
        for n, t in zip(rows["name"], rows["text"], strict=True)
    ]


VIEW = View(
    "summary",
    "Summary",
    summary,
    draw,
    row_key=("part", "name"),
    merging=Merging(contribution, SHAPES, of_many),
)
