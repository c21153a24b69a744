"""Now: the last seconds of a run compared with the whole run, and the last minute as strips."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl
from msgspec import structs

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis import recent_stats
from tracetui.analysis.frames import name_filter, selection
from tracetui.analysis.frames.display_names import select_display_names
from tracetui.analysis.recent_stats import Strip, Throughput
from tracetui.glyphs import clip_cells, count_cells, fit_cells
from tracetui.look import Look
from tracetui.views import Answer, View, ink
from tracetui.views._category import resolve_category, select_ground_style, select_ink_style
from tracetui.views._flame_chart import ASCII_FILLS, FILLS
from tracetui.views._grid import draw_change_legend
from tracetui.views.ink import DrawSize, Line, Span

MAX_TEXT_PIECES: Final = 40  # newest pieces of the text
LABEL_CELLS: Final = 10  # for the name of a strip
VALUE_CELLS: Final = 14  # for its newest value, and for its scale
MIN_KERNEL_ROWS: Final = 4
BAR_CELLS: Final = 10  # for the bar of a share
_STRIPS: Final = {
    "name": pl.String(), "unit": pl.String(), "values": pl.List(pl.Float64), "usual": pl.Float64(),
    "highest": pl.Float64(),
}  # fmt: skip
# differences from the run, or the median, at which the colour changes
BOUNDS_PCT: Final = (10.0, 25.0, 50.0)


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per kernel of the last seconds; strips, layers, last step and text as parts."""
    run = runs[0]
    speed = recent_stats.compute_throughput(run)
    if speed is None:
        return Answer(pl.DataFrame(), (selection.explain_no_kernels(run),), ("name",))
    rows = recent_stats.compute_recent_kernels(run)
    if look.filter:
        rows = rows.filter(name_filter.match_names(rows["name"], look.filter))
    strips = [(s.name, s.unit, list(s.values), s.median, s.highest) for s in recent_stats.compute_strips(run)]
    parts = {
        "pace": pl.DataFrame([structs.asdict(speed)], infer_schema_length=None),
        "strips": pl.DataFrame(strips, schema=_STRIPS, orient="row"),
        "layers": recent_stats.compute_recent_layers(run),
        "step": recent_stats.select_last_step(run),
        "text": pl.DataFrame({"text": [_join_newest_text(run)]}),
        "late": pl.DataFrame({"text": recent_stats.describe_slow_steps(run)}, schema={"text": pl.String}),
    }
    steps = f"{speed.steps:,} step{'s' * (speed.steps != 1)}"
    is_old = speed.age_ns > recent_stats.RECENT_S * recent_stats.SECOND_NS
    when = f" before {units.format_duration(speed.age_ns)} without a step" if is_old else ""
    note = f"the last {recent_stats.RECENT_S} seconds{when}: {steps}; times are per token, vs the run"
    return Answer(rows, (note,), ("name",), parts)


def _join_newest_text(run: Run) -> str:
    """Return the newest words of the run; for random weights, that they are meaningless."""
    if str(run.meta.get("weights") or "").startswith("random"):
        return "random weights: the text is meaningless"
    if not run.has("path"):
        return ""
    marks = selection.select_kind(run, "mark", ("name", "path"))
    pieces = marks.filter(pl.col("path").cast(pl.String) == "text")["name"].tail(MAX_TEXT_PIECES)
    return "".join(map(str, pieces.cast(pl.String).to_list()))


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw throughput, strips, kernels, layers, the last step and the text; small screens get fewer parts."""
    if not answer.parts:
        return []
    parts = answer.parts
    head = [_draw_pace(Throughput(**parts["pace"].row(0, named=True)))]
    late = [ink.make_line((f"{'^' if size.ascii else '▲'} {text}", "warn")) for text in parts["late"]["text"]]
    strips = [_draw_strip(Strip(n, u, tuple(v), x, h), size) for n, u, v, x, h in parts["strips"].iter_rows()]
    below = [
        *_draw_layers(parts["layers"], size),
        *_draw_last_step(parts["step"], size),
        *_draw_last_words(parts["text"]["text"][0], size),
    ]
    room = size.height - len(head) - MIN_KERNEL_ROWS - 1
    below = below if len(below) <= room - 2 else below[-max(0, room - 3) :] if room > 5 else []
    above = [*late, *strips][: max(0, room - len(below))] if size.height < 30 else [*strips, *late]
    rows = size.height - len(head) - len(above) - len(below)
    named = answer.rows.with_columns(pl.col("name").replace(select_display_names(answer.rows, answer.names)))
    kernels = _draw_kernels(named, look, size.with_height(rows))
    return ink.clip_lines([*head, *above, *kernels, *below], size)


def _draw_pace(now: Throughput) -> Line:
    """Draw the line of figures: throughput now and on average, step time."""
    parts: list[Span | str | tuple[str, str]] = []
    if now.now_per_s is not None:
        is_old = now.age_ns > recent_stats.RECENT_S * recent_stats.SECOND_NS
        when = f"{units.format_duration(now.age_ns)} ago " if is_old else "now "
        parts += [
            (when, "warn" if is_old else "dim"),
            (f"{units.format_speed(now.now_per_s)} tok/s", "bold"),
            "   ",
        ]
    if now.mean_per_s is not None:
        parts += [("mean ", "dim"), f"{units.format_speed(now.mean_per_s)} tok/s", "   "]
    p50, p95 = map(units.format_duration, (now.p50_ns, now.p95_ns))
    parts += [("step ", "dim"), p50, (" p95 ", "dim"), p95]
    if now.context is not None:
        parts += [("   context ", "dim"), f"{now.context:,}"]
    return ink.make_line(*parts)


def _draw_strip(strip: Strip, size: DrawSize) -> Line:
    """Draw a value over the last minute, a cell per second, on a stable scale."""
    cells = strip.values[-max(1, size.width - LABEL_CELLS - 2 * VALUE_CELLS) :]
    longest = strip.unit == "ns"
    top = round_up_to_nice(2 * strip.median if longest else strip.highest)
    late = recent_stats.SLOW_FACTOR * strip.median if longest else math.inf
    spans = [
        Span(glyphs.draw_sparkline([v], 1, size.ascii, top=top), "warn" if v and v > late else "accent")
        for v in cells
    ]
    values = [v for v in strip.values if v is not None]
    newest = _format_strip_value(values[-1], strip.unit) if values else units.ABSENT
    scale = f"  of 0{'-' if size.ascii else '–'}{_format_strip_value(top, strip.unit)}"
    return ink.make_line(
        (fit_cells(strip.name, LABEL_CELLS), "dim"), *spans, f" {newest:>{VALUE_CELLS - 4}}", (scale, "dim")
    )


def _format_strip_value(value: float, unit: str) -> str:
    if unit == "ns":
        return units.format_duration(value)
    if unit == "B":
        return units.format_size(value)
    return f"{units.format_speed(value)}" if unit == "tok/s" else f"{value:,.0f} {unit}"


def round_up_to_nice(value: float) -> float:
    """Return the next of 1, 1.5, 2, 3, 5, 7.5, 10, 15 …, for a scale that rarely changes and is mostly used.

    1 for zero, negative and non-finite values.
    """
    if not 0 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        (power * step for step in (1, 1.5, 2, 3, 5, 7.5, 10) if value <= power * step < math.inf), value
    )


def _draw_kernels(rows: pl.DataFrame, look: Look, size: DrawSize) -> list[Line]:
    """Draw the kernels of the last seconds: share, time per token, change against the run."""
    room = max(0, size.height - 1)
    at = max(0, min(look.cursor[0], rows.height - 1))
    top = ink.find_first_visible(rows.height, room, at)
    width = max(12, min(40, size.width - BAR_CELLS - 40))
    title = f"{'name':<{width}} {'':{BAR_CELLS}} {'share':>6} {'per token':>10} {'mean':>10} {'vs run':>8}"
    lines = [ink.make_line((clip_cells(title, size.width), "title"))]
    for i, row in enumerate(rows.slice(top, room).iter_rows(named=True), top):
        percent = row["vs_run_pct"]
        bar = glyphs.draw_bar(row["share"], BAR_CELLS, size.ascii)
        now, in_run = (units.format_duration(row[c]) for c in ("now_ns", "run_ns"))
        figures = f" {units.format_share(row['share']):>6} {now:>10} {in_run:>10} "
        change = f"{f'{percent:+.0f}%':>8} {glyphs.format_change_sign(percent, size.ascii, BOUNDS_PCT)}"
        name = f"{fit_cells(row['name'], width, ascii=size.ascii)} "
        if i == at:
            lines.append(ink.make_line((name + bar + figures + change, "cursor")))
        else:
            tone = "" if abs(percent) < BOUNDS_PCT[0] else glyphs.select_sign_style(percent)
            fill = select_ink_style(row.get("category"))
            lines.append(ink.make_line(name, (bar, fill), figures, (change, tone)))
    return lines


def _draw_layers(rows: pl.DataFrame, size: DrawSize) -> list[Line]:
    """Draw the layers in one line, coloured by distance from their median."""
    if rows.is_empty():
        return []
    wide = max(1, min(4, (size.width - LABEL_CELLS) // rows.height))
    signs = [
        glyphs.format_change_sign(v, size.ascii, BOUNDS_PCT, wide).center(wide) for v in rows["over_pct"]
    ]
    styles = [glyphs.select_change_style(v, BOUNDS_PCT) for v in rows["over_pct"]]
    first, last = rows["layer"][0], rows["layer"][-1]
    return [
        ink.make_line(
            (fit_cells(f"layers {first}-{last}", LABEL_CELLS + 2), "title"), *map(Span, signs, styles)
        ),
        draw_change_legend(BOUNDS_PCT, "median", wide + 1, size, "over the median"),
    ]


def _draw_last_step(rows: pl.DataFrame, size: DrawSize) -> list[Line]:
    """Draw the ops of the newest step in order, each as wide as its time, in its colour."""
    step_ns = int(rows["dur"].sum()) if rows.height else 0
    if not step_ns:
        return []
    fills, spans, done = (ASCII_FILLS if size.ascii else FILLS), [], 0
    for row in rows.iter_rows(named=True):
        first, done = done * size.width // step_ns, done + row["dur"]
        spans += _draw_block(row, done * size.width // step_ns - first, size.ascii)
    categories = dict.fromkeys(resolve_category(row.get("category")) for row in rows.iter_rows(named=True))
    names = [part for c in categories for part in ((fills[c] * 2, select_ink_style(c)), (f" {c}  ", "dim"))]
    title = f"last step in execution order, {units.format_duration(step_ns)}   "
    return [ink.make_line((title, "title"), *names), ink.make_line(*(s for s in spans if s.text))]


def _draw_block(row: Mapping[str, Any], room: int, ascii: bool) -> list[Span]:
    """Draw an op: its name if that fits, and the fill of its category."""
    category = resolve_category(row.get("category"))
    word = str(row.get("op") or row["name"]).rpartition(".")[2]
    edge = ("|" if ascii else "▏") + word if room > count_cells(word) else ""
    fill = (ASCII_FILLS if ascii else FILLS)[category] * (room - count_cells(edge))
    return [Span(edge, select_ground_style(category)), Span(fill, select_ink_style(category))]


def _draw_last_words(text: str, size: DrawSize) -> list[Line]:
    """Draw the end of the text that fits in a line."""
    if not text:
        return []
    room = max(1, size.width - 2)
    text = text[-room:]
    while count_cells(text) > room:
        text = text[1:]
    return [ink.make_line(("> ", "dim"), (text, "name"))]


VIEW = View(
    "now",
    "Now",
    answer,
    draw,
    needs=frozenset({"dur", "step", "t"}),
    shortcut="f",
    filters="names",
    tab="live",
    not_merged_because="it shows the last seconds of one run",
)
