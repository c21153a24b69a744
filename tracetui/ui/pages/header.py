"""The head of the screen as lines of ink: what is open, and the tabs of the views."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from capture.run import Run
from tracetui import units
from tracetui.analysis.vitals import Vitals
from tracetui.ui.run_info import RunInfo
from tracetui.ui.terminal.paint import fit, width_of
from tracetui.views.diff import labels
from tracetui.views.ink import Line, Span

SHOWN_METADATA: Final = ("model", "dtype", "quant", "device")
RUN_LEAST: Final = 12
MEAN_FROM: Final = 64  # cells of a screen that shows the mean speed beside that of the present
NAME_LEAST: Final = 6  # cells that no badge may take from the name


def header(
    run: Run | None,
    info: RunInfo,
    lens: str | None,
    width: int,
    place: str = "",
    writer: str = "",
    asked: Sequence[tuple[Run, RunInfo]] = (),
) -> Line:
    """Return the line with the run and its badges; on a narrow screen the least important parts go first."""
    if run is None:
        return (Span(" tracetui", "bar_on"),)
    several = len(asked) > 1
    if several:
        name, speed, parts = _several(asked)
    else:
        sampled = bool(writer) and not run.meta.get("watched")  # beside it our sampler reads this machine
        name, *parts = _parts(run, info, lens, place, live=sampled)
        speed = _speed(info, width)
    speed = f" · {speed}" if speed else ""
    badges = _fitting(
        _badge_spans([each for each, _ in asked] or [run], writer), width - width_of(speed) - NAME_LEAST
    )
    room = width - sum(width_of(b.text) for b in badges) - 1 - width_of(speed)
    most = room if several else min(max(RUN_LEAST, room // 2), room)
    name = fit(name, max(1, min(width_of(name), most)))
    details = _details(parts, room - width_of(name))
    left = room - width_of(name) - sum(width_of(s.text) for s in details)
    return (Span(" "), Span(name, "title"), Span(speed), *details, Span(" " * max(0, left)), *badges)


def _badge_spans(runs: Sequence[Run], writer: str) -> list[Span]:
    """Return what must not be overlooked: who writes the file, then the badges of the runs, each once."""
    texts = [writer, *(badge for run in runs for badge in _badges(run))]
    return [Span(f" {text} ", "bar_warn") for text in dict.fromkeys(texts) if text]


def _details(parts: Sequence[str], room: int) -> list[Span]:
    """Return the parts that fit, the most important first; one that is too long leaves room for the next."""
    spans = []
    for part in parts:
        text = f" · {part}"
        if width_of(text) <= room:
            spans.append(Span(text))
            room -= width_of(text)
    return spans


def _speed(info: RunInfo, width: int) -> str:
    """Return how fast the run is at present, and where there is room its mean; without a present the mean."""
    if info.now_per_s is None:
        return _tokens_per_s(info.tokens_per_s)
    now = f"{_tokens_per_s(info.now_per_s)} now"
    if info.tokens_per_s is None or width < MEAN_FROM:
        return now
    return f"{now}, mean {units.speed(info.tokens_per_s)}"


def _tokens_per_s(speed: float | None) -> str:
    return f"{units.speed(speed)} tok/s" if speed else ""


def _fitting(badges: Sequence[Span], room: int) -> list[Span]:
    """Return the first badges that leave room for a name and its speed."""
    kept: list[Span] = []
    for badge in badges:
        room -= width_of(badge.text)
        if room > 0:
            kept.append(badge)
    return kept


def _parts(run: Run, info: RunInfo, lens: str | None, place: str, *, live: bool) -> list[str]:
    """Return the run's name, then what is known beside its speed, by falling importance."""
    shown = lens or (info.lenses[0] if info.lenses else None)
    steps = f"{info.step_count:,} step{'s' * (info.step_count != 1)}" if info.steps else ""
    model, *others = (str(run.meta[k]) if run.meta.get(k) else "" for k in SHOWN_METADATA)
    times = f"{shown} times" if shown else ""
    details = [place, _weights(run), model, *_vitals(info.vitals, live), times, steps, *others]
    return [run.name, *(p for p in dict.fromkeys(details) if p and p != run.name)]


def _several(asked: Sequence[tuple[Run, RunInfo]]) -> tuple[str, str, list[str]]:
    """Return a name for several runs, their speeds, and what holds of all of them."""
    runs = [run for run, _ in asked]
    values = [_distinct(describe, runs) for describe in (_weights, *map(_metadata, SHOWN_METADATA))]
    parts = [" → ".join(texts) for texts in values if len(texts) == 1 or (len(texts) == 2 == len(runs))]
    if len(asked) > 2:
        return f"{len(asked)} runs", "", parts
    before, after = (info.tokens_per_s for _, info in asked)
    speed = f"{units.speed(before)} → {units.speed(after)} tok/s" if before and after else ""
    return " → ".join(labels(*runs)), speed, parts


def _distinct(describe: Callable[[Run], str], runs: Sequence[Run]) -> list[str]:
    """Return what is said of the runs, each text once, without those of which nothing is said."""
    return [text for text in dict.fromkeys(map(describe, runs)) if text]


def _metadata(key: str) -> Callable[[Run], str]:
    return lambda run: str(run.meta.get(key) or "")


def _weights(run: Run) -> str:
    """Return whether weights are random or real; empty where the run does not say."""
    weights = str(run.meta.get("weights") or "")
    return "weights=random" if weights.startswith("random") else "weights=real" if "/" in weights else weights


def _vitals(now: Vitals, live: bool) -> Iterator[str]:
    """Yield the newest figures; one that a live run should have and has not is said to be missing."""
    if now.context is not None:
        yield f"ctx {now.context:,}"
    if now.read_share is not None and now.read_roof is not None:
        yield f"{100 * now.read_share:.0f}% of {units.giga(now.read_roof / 1e9)} GB/s"
    if now.memory is not None or live:
        yield f"mem {units.cell('bytes', now.memory)}"
    for device, figures in now.gauges.items():
        yield f"{device} " + " ".join(_gauge(value, unit) for value, unit in figures)
    if live and not now.gauges:
        yield f"cpu {units.ABSENT}"
    if now.capture_pct is not None or live:
        yield f"capture {units.cell('capture_pct', now.capture_pct)}"


def _gauge(value: float | None, unit: str) -> str:
    text = units.ABSENT if value is None else f"{value:,.0f}"
    if unit == "ms":
        return f"~{text} ms"  # a quantile that is estimated
    return text if unit == "requests" else f"{text}%" if unit == "%" else f"{text} {unit}"


def _badges(run: Run) -> list[str]:
    """Return the badges of a run: what a reader of the numbers must not overlook."""
    guesses = run.meta.get("guess") or ()
    return [
        *([f"{units.number(run.log.dropped)} dropped"] if run.log.dropped else []),
        *(["cut short"] if run.meta.get("truncated") else []),
        *(["profiled"] if run.meta.get("profiled") else []),
        *(["guess"] if guesses else []),
    ]


def tabs(titles: Sequence[tuple[str, bool]], current: int, width: int) -> Line:
    """Return the line of tabs by number, those that the run cannot feed dim."""
    texts = _tab_texts(titles)
    first = _first_tab([len(t) for t in texts], current, width)
    spans: list[Span] = [Span("‹" if first else " ", "")]
    at = 1
    for i in range(first, len(texts)):
        end = at + len(texts[i])
        if end > width - (i < len(texts) - 1):
            spans.append(Span("›"))
            break
        style = "bar_on" if i == current else "" if titles[i][1] else "dim"
        spans.append(Span(texts[i], style))
        at = end
    return tuple(spans)


def tab_at(titles: Sequence[tuple[str, bool]], current: int, width: int, column: int) -> int | None:
    """Return the number of the tab, from 1, that such a line shows in a column; None where it shows none."""
    texts, end = _tab_texts(titles), 1
    for i in range(_first_tab([len(t) for t in texts], current, width), len(texts)):
        begin, end = end, end + len(texts[i])
        if end > width - (i < len(texts) - 1):
            return None
        if begin <= column < end:
            return i + 1
    return None


def _tab_texts(titles: Sequence[tuple[str, bool]]) -> list[str]:
    return [f" {i} {title} " if i <= 9 else f" {title} " for i, (title, _) in enumerate(titles, 1)]


def _first_tab(widths: Sequence[int], current: int, width: int) -> int:
    """Return the first tab to show so that the current one is in sight."""
    first = 0
    while first < current and 1 + sum(widths[first : current + 1]) > width - 1:
        first += 1
    return first
