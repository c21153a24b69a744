"""Summary: what ran, how fast, where the time went, and what this source cannot tell."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.summary import SHAPES, merged_summary, partial
from tracetui.analysis.summary import SCHEMA, scope, summary_table
from tracetui.look import Look
from tracetui.shown_names import shown_names
from tracetui.views import Answer, Merging, View, ink, missing, views
from tracetui.views.ink import Line, Size

_TITLES: Final = {
    "phase": "time by phase",
    "category": "time by category",
    "op": "time by op",
    "name": "top kernels",
    "outlier": "files unlike the others",
    "unknown": "what this source cannot tell",
}
_BY_WEIGHT: Final = (
    "category",
    "name",
    "outlier",
    "phase",
    "unknown",
    "op",
)  # what a small screen keeps longest
_IN_WORDS: Final = ("outlier", "unknown")
_FIX: Final = "F: what to fix"
_INDENT: Final = "  "
MOST_BARS: Final = 10


def summary(runs: Sequence[Run], look: Look) -> Answer:
    """Return facts as text, sums by phase, category, op and name, and the views that cannot be fed."""
    run = runs[0]
    rows = pl.concat([summary_table(run, look), _unknown(run)])
    return Answer(rows, tuple(scope(run, look)), key=("name",))


def _unknown(run: Run) -> pl.DataFrame:
    """Return the views that the source cannot feed, each with what is missing."""
    rows = [
        {"part": "unknown", "name": v.name, "text": f"needs {' and '.join(needs)}"}
        for v, needs in _lacking(run)
        if not _of_some_sources(v)
    ]
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
    """Draw facts first, then bars part by part; a small screen gets fewer bars and parts."""
    parts = {str(p): f for (p,), f in answer.rows.group_by("part", maintain_order=True)}
    lines = _verdicts(parts.pop("verdict", answer.rows.head(0)), size)
    lines += _facts(parts.pop("run", answer.rows.head(0)), size)
    chosen, most = _fitting(parts, size.height - len(lines))
    for part in (p for p in parts if p in chosen):
        rows = parts[part]
        lines += [ink.line(), ink.line((_TITLES[part], "title"))]
        lines += _texts(rows) if part in _IN_WORDS else _bars(rows, Size(size.width, most, size.ascii))
    return ink.clip(lines, size)


def _verdicts(rows: pl.DataFrame, size: Size) -> list[Line]:
    """Return what to know first, a sentence a line or more, and an empty line behind them."""
    texts = dict(rows.select("name", "text").iter_rows())
    device = [texts[name] for name in ("device", "bound") if name in texts]
    lever = f"{texts['lever']} ({_FIX})" if "lever" in texts else ""
    watched = [texts.get(name, "") for name in ("server", "latency", "windows")]
    sentences = [s for s in (*watched, texts.get("run", ""), ", ".join(device), lever) if s]
    wide = max(size.width, len(_INDENT) + 1)
    lines = [part for s in sentences for part in textwrap.wrap(s, wide, subsequent_indent=_INDENT)]
    return [ink.line((text, "bold")) for text in lines] + [ink.line()] * bool(lines)


def _fitting(parts: Mapping[str, pl.DataFrame], room: int) -> tuple[list[str], int]:
    """Return the parts that fit, and how many bars each may have."""
    chosen = [p for p in _BY_WEIGHT if p in parts]
    while chosen:
        for most in range(MOST_BARS, 2, -1):
            if (
                sum(2 + (parts[p].height if p in _IN_WORDS else min(most, parts[p].height)) for p in chosen)
                <= room
            ):
                return chosen, most
        chosen.pop()
    return [], 0


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
    names, totals, shares = (rows[c].to_list() for c in ("name", "total_ns", "share"))
    shown = shown_names(name for name in names if name)
    return ink.bars(totals, [shown.get(name, name) for name in names], size, units.duration, shares)


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
