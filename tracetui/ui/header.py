"""The head of the screen as lines of ink: what is open, and the tabs of the views."""

from collections.abc import Sequence
from typing import Final

from capture.run import Run
from tracetui import units
from tracetui.ui.facts import Facts
from tracetui.ui.paint import fit, width_of
from tracetui.views.diff import titles
from tracetui.views.ink import Line, Span

KNOWN: Final = ("model", "device", "dtype", "quant", "weights")
RUN_LEAST: Final = 12


def header(
    run: Run | None,
    facts: Facts,
    lens: str | None,
    width: int,
    place: str = "",
    writer: str = "",
    asked: Sequence[Run] = (),
) -> Line:
    """The run and its badges; on a narrow screen the least important parts go first."""
    if run is None:
        return (Span(" tracetui", "bar_on"),)
    told = [badge for each in asked or (run,) for badge in _badges(each)]
    badges = [Span(f" {text} ", "bar_warn") for text in dict.fromkeys((writer, *told)) if text]
    room = width - sum(width_of(b.text) for b in badges) - 1
    parts = _parts(run, facts, lens, place)
    if len(asked) > 1:
        parts[0] = " → ".join(titles(*asked)) if len(asked) == 2 else f"{len(asked)} runs"
    name = fit(parts[0], max(1, min(width_of(parts[0]), max(RUN_LEAST, room // 2), room)))
    room -= width_of(name)
    spans = [Span(" "), Span(name, "title")]
    for part in parts[1:]:
        text = f" · {part}"
        if width_of(text) <= room:
            spans.append(Span(text))
            room -= width_of(text)
    return (*spans, Span(" " * max(0, room)), *badges)


def _parts(run: Run, facts: Facts, lens: str | None, place: str) -> list[str]:
    """What is known of the run, by falling importance."""
    shown = lens or (facts.lenses[0] if facts.lenses else None)
    speed = _speed(facts.tokens_per_s) if facts.tokens_per_s else ""
    steps = f"{facts.step_count:,} steps" if facts.steps else ""
    known = [str(run.meta[k]) for k in KNOWN if run.meta.get(k)]
    times = f"{shown} times" if shown else ""
    parts = [run.name, place, *known[:1], speed, times, steps, *known[1:]]
    return [parts[0], *(p for p in dict.fromkeys(parts[1:]) if p and p != run.name)]


def _speed(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f} tok/s" if tokens_per_s >= 1000 else f"{tokens_per_s:.4g} tok/s"


def _badges(run: Run) -> list[str]:
    """What a reader of the numbers must not overlook."""
    guesses = run.meta.get("guess") or ()
    return [
        *([f"{units.number(run.log.dropped)} dropped"] if run.log.dropped else []),
        *(["cut short"] if run.meta.get("truncated") else []),
        *(["profiled"] if run.meta.get("profiled") else []),
        *(["guess"] if guesses else []),
    ]


def tabs(titles: Sequence[tuple[str, bool]], current: int, width: int) -> tuple[Line, list[range]]:
    """The views by number, those that the run cannot feed dim; and where on the line each stands."""
    texts = [f" {i} {title} " if i <= 9 else f" {title} " for i, (title, _) in enumerate(titles, 1)]
    first = _first_tab([len(t) for t in texts], current, width)
    spans: list[Span] = [Span("‹" if first else " ", "")]
    places = [range(0)] * len(texts)
    at = 1
    for i in range(first, len(texts)):
        end = at + len(texts[i])
        if end > width - (i < len(texts) - 1):
            spans.append(Span("›"))
            break
        style = "bar_on" if i == current else "" if titles[i][1] else "dim"
        spans.append(Span(texts[i], style))
        places[i], at = range(at, end), end
    return tuple(spans), places


def _first_tab(widths: Sequence[int], current: int, width: int) -> int:
    """The first tab to show so that the current one is in sight."""
    first = 0
    while first < current and 1 + sum(widths[first : current + 1]) > width - 1:
        first += 1
    return first
