"""The lines above and below a page: run and badges, tabs, status, and the keys that help now."""

from collections.abc import Iterator, Sequence
from typing import Final

from capture.run import Run
from tracetui import units
from tracetui.analysis.vitals import Vitals
from tracetui.glyphs import count_cells, fit_cells, fit_sentence
from tracetui.look import Look
from tracetui.ui.key_table import DIGITS, KEYS, KeyBinding, KeyContext, list_footer_keys
from tracetui.ui.run_info import RunInfo
from tracetui.views.diff import build_labels
from tracetui.views.ink import Line, Span

SHOWN_METADATA: Final = ("model", "dtype", "quant", "device")
RUN_LEAST_CELLS: Final = 12  # of the name of one run, even if its details then lack room
BASIS_LEAST_WIDTH: Final = 100  # of the screen, to say what a speed is based on
LIVE_BASIS_LEAST_WIDTH: Final = 140  # next to gauges of a machine or a server, which matter more
MEAN_LEAST_WIDTH: Final = 64  # of the screen, to show the mean speed next to the present one
NAME_LEAST_CELLS: Final = 6  # badges leave so many to the name


def draw_header(
    run: Run | None,
    info: RunInfo,
    lens: str | None,
    width: int,
    position: str = "",
    writer: str = "",
    displayed: Sequence[tuple[Run, RunInfo]] = (),
    place: Sequence[str] = (),
    title: str = "",
) -> Line:
    """Return the header: name and place, speed, details by importance as far as they fit, badges.

    `place` is where the user is in the file: the view, then the rows that were entered.

    `position` is the place of the run among all open runs, `title` its name among them, `writer` the state of
    the program that writes its file, `displayed` what the view shows, which may be several runs.
    """
    if run is None:
        return (Span(" tracetui", "bar_on"),)
    several = len(displayed) > 1
    if several:
        name, speed, parts = _describe_runs(displayed, width)
    else:
        is_sampled = bool(writer) and not run.meta.get("watched")  # our sampler reads this machine
        name, *parts = _describe_run(run, info, lens, position, live=is_sampled)
        name = title or name
        speed = _format_speed(info, width, is_live=bool(writer))
    speed = f" · {speed}" if speed else ""
    runs = [each for each, _ in displayed] or [run]
    texts = [writer, *(badge for each in runs for badge in _list_badges(each))]
    badges = _draw_fitting(texts, width - count_cells(speed) - NAME_LEAST_CELLS)
    room = width - sum(count_cells(b.text) for b in badges) - 1 - count_cells(speed)
    name, title = _fit_title(name, place, room, is_alone=not several)
    details = _select_details(parts, room - count_cells(name) - count_cells(title))
    left = room - count_cells(name) - count_cells(title) - sum(count_cells(s.text) for s in details)
    where = (Span(name, "title"), Span(title, "title"), Span(speed))
    return (Span(" "), *where, *details, Span(" " * max(0, left)), *badges)


def _fit_title(name: str, place: Sequence[str], room: int, *, is_alone: bool) -> tuple[str, str]:
    """Return the name and the place behind it: a row matters more than a long name, a name than details."""
    title = "".join(f" › {part}" for part in place)
    least = room - count_cells(title) if len(place) > 1 else room
    most = min(max(RUN_LEAST_CELLS, min(room // 2, least)), room) if is_alone else room
    name = fit_cells(name, max(1, min(count_cells(name), most)))
    left = max(0, room - count_cells(name))
    return name, title if count_cells(title) <= left else fit_sentence(title, left).rstrip()


def _select_details(parts: Sequence[str], room: int) -> list[Span]:
    """Return the parts that fit, by importance; one that is too long makes room for the next."""
    spans = []
    for part in parts:
        text = f" · {part}"
        if count_cells(text) <= room:
            spans.append(Span(text))
            room -= count_cells(text)
    return spans


def _format_speed(info: RunInfo, width: int, *, is_live: bool) -> str:
    """Return the present speed and, if there is room, the mean; without a present speed, the mean."""
    if info.now_per_s is None:
        least = LIVE_BASIS_LEAST_WIDTH if is_live else BASIS_LEAST_WIDTH
        return _format_tokens_per_s(info.tokens_per_s) + _format_basis(info, width, least)
    now = f"{_format_tokens_per_s(info.now_per_s)} now"
    if info.tokens_per_s is None or width < MEAN_LEAST_WIDTH:
        return now
    return f"{now}, mean {units.format_speed(info.tokens_per_s)}"


def _format_basis(info: RunInfo, width: int, least: int = BASIS_LEAST_WIDTH) -> str:
    return f" {info.speed_basis}" if info.speed_basis and width >= least else ""


def _format_tokens_per_s(speed: float | None) -> str:
    return f"{units.format_speed(speed)} tok/s" if speed else ""


def _draw_fitting(badges: Sequence[str], room: int) -> list[Span]:
    """Return the first badges that fit, each once."""
    fitting: list[Span] = []
    for badge in filter(None, dict.fromkeys(badges)):
        room -= count_cells(badge) + 2
        if room > 0:
            fitting.append(Span(f" {badge} ", "bar_warn"))
    return fitting


def _describe_run(run: Run, info: RunInfo, lens: str | None, position: str, *, live: bool) -> list[str]:
    """Return the name of the run, then its details by falling importance."""
    lens = lens or (info.lenses[0] if info.lenses else None)
    steps = f"{info.step_count:,} step{'s' * (info.step_count != 1)}" if info.steps else ""
    times = f"{lens} times" if lens else ""
    model, *others = _list_metadata(run)
    vitals = _iter_vitals(info.vitals, live)
    details = [position, _describe_weights(run), model, *vitals, times, steps, *others]
    return [run.name, *(p for p in dict.fromkeys(details) if p and p != run.name)]


def _describe_runs(displayed: Sequence[tuple[Run, RunInfo]], width: int) -> tuple[str, str, list[str]]:
    """Return name, speeds and common details of several runs; of a pair also other details, as `a → b`."""
    runs = [run for run, _ in displayed]
    parts = _list_common_details(runs)
    if len(runs) > 2:
        return f"{len(runs)} runs", "", parts
    before, after = (info for _, info in displayed)
    speed = ""
    if before.tokens_per_s and after.tokens_per_s:
        speed = f"{units.format_speed(before.tokens_per_s)} → {_format_tokens_per_s(after.tokens_per_s)}"
        speed += _format_basis(before, width) if before.speed_basis == after.speed_basis else ""
    return " → ".join(build_labels(*runs)), speed, parts


def _list_common_details(runs: Sequence[Run]) -> list[str]:
    details = zip(*([_describe_weights(run), *_list_metadata(run)] for run in runs), strict=True)
    distinct = [[text for text in dict.fromkeys(texts) if text] for texts in details]
    return [" → ".join(texts) for texts in distinct if len(texts) == 1 or (len(texts) == 2 == len(runs))]


def _list_metadata(run: Run) -> list[str]:
    """Return the values of SHOWN_METADATA, empty if unknown."""
    return [str(run.meta.get(key) or "") for key in SHOWN_METADATA]


def _describe_weights(run: Run) -> str:
    """Return `weights=random` or `weights=real`, or an empty text if the run does not report it."""
    weights = str(run.meta.get("weights") or "")
    return "weights=random" if weights.startswith("random") else "weights=real" if "/" in weights else weights


def _iter_vitals(now: Vitals, live: bool) -> Iterator[str]:
    """Yield the newest values of counters; those that a live run lacks are shown as missing."""
    if now.context is not None:
        yield f"ctx {now.context:,}"
    if now.read_share is not None and now.read_roof is not None:
        yield f"{100 * now.read_share:.0f}% of {units.format_giga(now.read_roof / 1e9)} GB/s"
    if now.memory is not None or live:
        yield f"mem {units.format_cell('bytes', now.memory)}"
    for device, values in now.gauges.items():
        yield f"{device} " + " ".join(_format_gauge(value, unit) for value, unit in values)
    if live and not now.gauges:
        yield f"cpu {units.ABSENT}"
    if now.capture_pct is not None or live:
        yield f"capture {units.format_cell('capture_pct', now.capture_pct)}"


def _format_gauge(value: float | None, unit: str) -> str:
    text = units.ABSENT if value is None else f"{value:,.0f}"
    if unit == "ms":
        return f"~{text} ms"  # an estimated quantile
    return text if unit == "requests" else f"{text}%" if unit == "%" else f"{text} {unit}"


def _list_badges(run: Run) -> list[str]:
    """Return the badges of a run: warnings that concern all of its numbers."""
    dropped = [f"{units.format_number(run.log.dropped)} dropped"] if run.log.dropped else []
    words = {"truncated": "cut short", "profiled": "profiled", "guess": "guess"}
    return [*dropped, *(word for key, word in words.items() if run.meta.get(key))]


def draw_tabs(titles: Sequence[tuple[str, bool]], current: int, width: int) -> Line:
    """Return the numbered tabs; those that the run has no data for are dim."""
    first, texts = _fit_tabs(titles, current, width)
    styles = [
        "bar_on" if i == current else "" if has_data else "dim" for i, (_, has_data) in enumerate(titles)
    ]
    tabs = map(Span, texts, styles[first:])
    more = [Span("›")] if first + len(texts) < len(titles) else []
    return (Span("‹" if first else " "), *tabs, *more)


def find_tab_at(titles: Sequence[tuple[str, bool]], current: int, width: int, column: int) -> int | None:
    """Return the number of the tab, from 1, at a column of `draw_tabs`, or None."""
    first, texts = _fit_tabs(titles, current, width)
    end = 1
    for number, text in enumerate(texts, first + 1):
        begin, end = end, end + len(text)
        if begin <= column < end:
            return number
    return None


def _fit_tabs(titles: Sequence[tuple[str, bool]], current: int, width: int) -> tuple[int, list[str]]:
    """Return the index of the first tab to draw so that the current one is visible, and the tabs that fit."""
    texts = [f" {i} {title} " if i <= DIGITS else f" {title} " for i, (title, _) in enumerate(titles, 1)]
    first = 0
    while first < current and 1 + sum(map(len, texts[first : current + 1])) > width - 1:
        first += 1
    fitting, end = list[str](), 1
    for text in texts[first:]:
        end += len(text)
        if end > width - (first + len(fitting) < len(texts) - 1):
            break
        fitting.append(text)
    return first, fitting


def draw_status(look: Look, row: str, message: str, notes: Sequence[str], width: int) -> Line:
    """Return the status line: cursor, settings of the look, then the message or the first note."""
    state = [p for p in (row, *_describe_look(look)) if p]
    spans = [Span(" " + " · ".join(state))]
    gap = "   " if state else ""
    rest = message or _format_first_note(notes, width - count_cells(spans[0].text) - len(gap))
    if rest:
        spans.append(Span(gap + rest, "bar_warn" if message else "dim"))
    return tuple(spans)


def _format_first_note(notes: Sequence[str], room: int) -> str:
    """Return the first note, cut to the room, and the number of the others."""
    if not notes:
        return ""
    more = f" (+{len(notes) - 1})" if len(notes) > 1 else ""
    room -= count_cells(more)
    return (notes[0] if count_cells(notes[0]) <= room else f"{notes[0][: max(0, room - 1)]}…") + more


def _describe_look(look: Look) -> list[str]:
    """Return every setting that changes what the numbers mean, in words; the header has the entered rows."""
    first, last = look.window or (None, None)
    span = "" if first is None else f"step {first}" if first == last else f"steps {first}–{last}"
    return [
        f"/{look.filter}/" if look.filter else "",
        f"by {look.group}" if look.group and look.group != "name" else "",
        f"{look.phase} only" if look.phase else "",
        "changed only" if look.terms.changed_only else "",
        f"per {look.per}" if look.per != "total" else "",
        span,
        "steady steps" if look.steady else "",
    ]


def draw_footer(width: int, now: KeyContext, keys: Sequence[KeyBinding] = KEYS) -> Line:
    """Return the keys that help now, as many as fit.

    Textual's `Footer` has a widget for each key and mounts all again when they change: 48 ms for 12 keys.
    This takes 0.03 ms.
    """
    spans: list[Span] = [Span(" ")]
    room = width - 1
    for key, text in list_footer_keys(now, keys):
        need = count_cells(key) + count_cells(text) + 3
        if need > room:
            break
        room -= need
        spans += [Span(key, "title"), Span(f" {text}  ")]
    return tuple(spans)
