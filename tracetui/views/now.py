"""Now: the present of a run, its last seconds against all of it, and the last minute in strips."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl
from msgspec import structs

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis import matching, present, select
from tracetui.analysis.present import Pace, Strip
from tracetui.look import Look
from tracetui.views import Answer, View, ink
from tracetui.views._category import coloured, grounded, inked
from tracetui.views._flame import ASCII_FILLS, FILLS
from tracetui.views._grid import legend
from tracetui.views.ink import Line, Size, Span

WORDS: Final = 40  # newest pieces of text that are read
LABEL: Final = 10  # cells of the name of a strip
FIGURE: Final = 12  # cells of its newest value
FEWEST: Final = 4  # rows of kernels
BAR: Final = 10  # cells of the bar of a share
_STRIPS: Final = {
    "name": pl.String(), "unit": pl.String(), "values": pl.List(pl.Float64), "usual": pl.Float64(),
    "highest": pl.Float64(),
}  # fmt: skip
BOUNDS: Final = (10.0, 25.0, 50.0)  # per cent against the run, or the median, from which a change is coloured


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a kernel of the last seconds; strips, layers, the last step and the text as parts."""
    run = runs[0]
    speed = present.pace(run)
    if speed is None:
        return Answer(pl.DataFrame(), (select.why_no_kernels(run),), ("name",))
    rows = present.kernels(run)
    if look.filter:
        rows = rows.filter(matching.fitting(rows["name"], look.filter))
    strips = [(s.name, s.unit, list(s.values), s.usual, s.highest) for s in present.strips(run)]
    parts = {
        "pace": pl.DataFrame([structs.asdict(speed)], infer_schema_length=None),
        "strips": pl.DataFrame(strips, schema=_STRIPS, orient="row"),
        "layers": present.layers(run),
        "step": present.last_step(run),
        "text": pl.DataFrame({"text": [_text(run)]}),
        "late": pl.DataFrame({"text": present.late_steps(run)}, schema={"text": pl.String}),
    }
    note = f"the last {present.RECENT_S} seconds: {speed.steps:,} steps; times are per token, against the run"
    return Answer(rows, (note,), ("name",), parts)


def _text(run: Run) -> str:
    """Return the newest words of the run; of random weights, that they mean nothing."""
    if str(run.meta.get("weights") or "").startswith("random"):
        return "random weights: what it says means nothing"
    if not run.has("path"):
        return ""
    marks = select.of_kind(run, "mark", ("name", "path"))
    said = marks.filter(pl.col("path").cast(pl.String) == "text")["name"].tail(WORDS)
    return "".join(map(str, said.cast(pl.String).to_list()))


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw the pace, strips, kernels, layers, the last step and the text; a low screen leaves some out."""
    if not answer.parts:
        return []
    parts = answer.parts
    head = [_pace(Pace(**parts["pace"].row(0, named=True)))]
    late = [ink.line((f"{'^' if size.ascii else '▲'} {text}", "warn")) for text in parts["late"]["text"]]
    strips = [_strip(Strip(n, u, tuple(v), x, h), size) for n, u, v, x, h in parts["strips"].iter_rows()]
    below = [
        *_layers(parts["layers"], size),
        *_last_step(parts["step"], size),
        *_said(parts["text"]["text"][0], size),
    ]
    room = size.height - len(head) - FEWEST - 1
    below = below if len(below) <= room - 2 else below[-max(0, room - 3) :] if room > 5 else []
    above = [*late, *strips][: max(0, room - len(below))] if size.height < 30 else [*strips, *late]
    rows = size.height - len(head) - len(above) - len(below)
    return ink.clip(
        [*head, *above, *_kernels(answer.rows, look, Size(size.width, rows, size.ascii)), *below], size
    )


def _pace(now: Pace) -> Line:
    """Return the line of figures: now, in all, the time of a step."""
    words: list[Span | str | tuple[str, str]] = []
    if now.now_per_s is not None:
        words += [("now ", "dim"), (f"{units.speed(now.now_per_s)} tok/s", "bold"), "   "]
    if now.mean_per_s is not None:
        words += [("mean ", "dim"), f"{units.speed(now.mean_per_s)} tok/s", "   "]
    words += [("step ", "dim"), units.duration(now.p50_ns), (" p95 ", "dim"), units.duration(now.p95_ns)]
    if now.context is not None:
        words += [("   context ", "dim"), f"{now.context:,}"]
    return ink.line(*words)


def _strip(strip: Strip, size: Size) -> Line:
    """Return a figure over the minute, a cell a second, on a scale that does not move with it."""
    cells = strip.values[-max(1, size.width - LABEL - 2 * FIGURE) :]
    longest = strip.unit == "ns"
    top = nice(2 * strip.usual if longest else strip.highest)
    late = present.LATE * strip.usual if longest else math.inf
    tones = ["warn" if v is not None and v > late else "accent" for v in cells]
    signs = [glyphs.sparkline([v], 1, size.ascii, top=top) for v in cells]
    spans = [Span(sign, tone) for sign, tone in zip(signs, tones, strict=True)]
    known = [v for v in strip.values if v is not None]
    newest = _written(known[-1], strip.unit) if known else units.ABSENT
    scale = f" of {_written(top, strip.unit)}"
    return ink.line((ink.fit(strip.name, LABEL), "dim"), *spans, f" {newest:>{FIGURE - 2}}", (scale, "dim"))


def _written(value: float, unit: str) -> str:
    if unit == "ns":
        return units.duration(value)
    if unit == "B":
        return units.size(value)
    return f"{units.speed(value)}" if unit == "tok/s" else f"{value:,.0f} {unit}"


def nice(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 … that is no less: a scale that stays while values move a little.
    It is 1 for what is no size: nothing, less than nothing, not finite.
    """
    if not 0 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((power * step for step in (1, 2, 5, 10) if value <= power * step < math.inf), value)


def _kernels(rows: pl.DataFrame, look: Look, size: Size) -> list[Line]:
    """Return the kernels of the last seconds: share, time a token, by how much that differs from the run."""
    room = max(0, size.height - 1)
    at = max(0, min(look.cursor[0], rows.height - 1))
    top = max(0, min(at - room // 2, rows.height - room))
    width = max(12, min(40, size.width - BAR - 40))
    title = f"{'name':<{width}} {'':{BAR}} {'share':>6} {'a token':>10} {'in all':>10} {'vs run':>8}"
    lines = [ink.line((ink.clipped(title, size.width), "title"))]
    for i, row in enumerate(rows.slice(top, room).iter_rows(named=True), top):
        bar = glyphs.bar(row["share"], BAR, size.ascii)
        now, usual = (units.duration(row[c]) for c in ("now_ns", "run_ns"))
        figures = f" {units.share(row['share']):>6} {now:>10} {usual:>10} "
        change = f"{row['vs_run_pct']:+.0f}%"
        mark = glyphs.drift_mark(row["vs_run_pct"], size.ascii, BOUNDS)
        name = ink.fit(row["name"], width, ascii=size.ascii)
        if i == at:
            lines.append(ink.line((f"{name} {bar}{figures}{change:>8} {mark}", "cursor")))
            continue
        tone = "" if abs(row["vs_run_pct"]) < BOUNDS[0] else glyphs.sign_tone(row["vs_run_pct"])
        lines.append(
            ink.line(f"{name} ", (bar, inked(row.get("category"))), figures, (f"{change:>8} {mark}", tone))
        )
    return lines


def _layers(rows: pl.DataFrame, size: Size) -> list[Line]:
    """Return a line of the layers, each a sign in the colour of how far it is from their median."""
    if rows.is_empty():
        return []
    wide = max(1, min(4, (size.width - LABEL) // rows.height))
    cells = [
        Span(glyphs.drift_mark(v, size.ascii, BOUNDS, wide).center(wide), glyphs.drift(v, BOUNDS))
        for v in rows["over_pct"]
    ]
    first, last = rows["layer"][0], rows["layer"][-1]
    return [
        ink.line((ink.fit(f"layers {first}-{last}", LABEL + 2), "title"), *cells),
        legend(BOUNDS, "median", wide + 1, size, "over the median"),
    ]


def _last_step(rows: pl.DataFrame, size: Size) -> list[Line]:
    """Return the newest step in the order in which it ran: each op as wide as it took, in its colour."""
    whole = int(rows["dur"].sum()) if rows.height else 0
    if not whole:
        return []
    fills, spans, done = (ASCII_FILLS if size.ascii else FILLS), [], 0
    for row in rows.iter_rows(named=True):
        first, done = done * size.width // whole, done + row["dur"]
        spans += _block(row, done * size.width // whole - first, size.ascii)
    seen = dict.fromkeys(coloured(row.get("category")) for row in rows.iter_rows(named=True))
    names = [part for c in seen for part in ((fills[c] * 2, inked(c)), (f" {c}  ", "dim"))]
    title = f"the last step in the order in which it ran, {units.duration(whole)}   "
    return [ink.line((title, "title"), *names), ink.line(*(s for s in spans if s.text))]


def _block(row: Mapping[str, Any], room: int, ascii: bool) -> list[Span]:
    """Return an op in as many cells: its name where that fits, and the fill of its category."""
    category = coloured(row.get("category"))
    word = str(row.get("op") or row["name"]).rpartition(".")[2]
    edge = ("|" if ascii else "▏") + word if room > ink.wide(word) else ""
    fill = (ASCII_FILLS if ascii else FILLS)[category] * (room - ink.wide(edge))
    return [Span(edge, grounded(category)), Span(fill, inked(category))]


def _said(text: str, size: Size) -> list[Line]:
    """Return the newest words, as many as fit in a line."""
    if not text:
        return []
    room = max(1, size.width - 2)
    text = text[-room:]
    while ink.wide(text) > room:
        text = text[1:]
    return [ink.line(("> ", "dim"), (text, "name"))]


_ALONE: Final = "it shows the last seconds of one run"
VIEW = View("now", "Now", answer, draw, needs=frozenset({"dur", "step", "t"}), key="f", alone=_ALONE)
