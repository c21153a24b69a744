"""What a key does to the session: each a pure function from session to session."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tracetui.look import GROUPS, PERS
from tracetui.ui.session import Session

Command = Callable[[Session], Session]
ZOOM: Final = 2


def group(session: Session) -> Session:
    """Group by the next column that the run has."""
    run = session.run
    choices = [g for g in GROUPS if run is None or run.has(g)]
    return session.with_look(
        group=_after(choices, session.look.group or "name"), sort=None, then=(), cursor=(0, 0)
    )


def lens(session: Session) -> Session:
    choices = session.info.lenses
    current = session.look.lens or (choices[0] if choices else None)
    return session.with_look(lens=_after(choices, current)) if len(choices) > 1 else session


def phase(session: Session) -> Session:
    """Show the next phase; after the last one all of them."""
    choices = [None, *session.info.phases]
    return session.with_look(phase=_after(choices, session.look.phase))


def per(session: Session) -> Session:
    return session.with_look(per=_after(PERS, session.look.per))


def sort(session: Session) -> Session:
    """Sort by the next column alone."""
    if not session.columns:
        return session
    return sort_alone(session, _after(session.columns, session.look.sort))


def sort_alone(session: Session, column: str) -> Session:
    """Sort by a column alone: numbers from the largest, text from A."""
    return session.with_look(sort=column, descending=_falls(session, column), then=(), cursor=(0, 0))


def _falls(session: Session, column: str) -> bool:
    """Tell whether a column begins with the largest where no other order is asked for."""
    return column not in session.of_text


def sort_by(session: Session, column: str) -> Session:
    """Sort by a column alone; where that is in force already, turn the order round."""
    if session.look.orders[:1] == session.look.orders and session.look.sort == column:
        return reverse(session)
    return sort_alone(session, column)


def sort_further(session: Session, column: str) -> Session:
    """Sort rows that are equal so far by one more column; turn the order of one that is in force round."""
    look = session.look
    if look.sort is None:
        return sort_alone(session, column)
    orders = dict(look.orders)
    orders[column] = not orders[column] if column in orders else _falls(session, column)
    return _with_orders(session, tuple(orders.items()))


def sort_within(session: Session) -> Session:
    """Keep the order, and sort rows that are equal in it by the next column; again: by the one after it."""
    look = session.look
    if look.sort is None or len(session.columns) < 2:
        return sort(session)
    before = look.orders[:-1] if look.then else look.orders
    taken = [column for column, _ in before]
    free = [column for column in session.columns if column not in taken]
    last = look.orders[-1][0] if look.then else None
    column = _after(free, last)
    return _with_orders(session, (*before, (column, _falls(session, column))))


def reverse(session: Session) -> Session:
    """Turn the order round; of several columns that of the last one."""
    if not session.look.orders:
        first = session.columns[0] if session.columns else None
        return session.with_look(sort=first, descending=False, then=(), cursor=(0, 0))
    *before, (column, falls) = session.look.orders
    return _with_orders(session, (*before, (column, not falls)))


def _with_orders(session: Session, orders: Sequence[tuple[str, bool]]) -> Session:
    (column, falls), *then = orders
    return session.with_look(sort=column, descending=falls, then=tuple(then), cursor=(0, 0))


def clear_filter(session: Session) -> Session:
    return session.with_look(filter="", cursor=(0, 0))


def back(session: Session) -> Session:
    """Clear the filter; without one go one level out."""
    return clear_filter(session) if session.look.filter else session.outside()


def changed(session: Session) -> Session:
    terms = session.look.terms
    return session.with_look(terms=replace(terms, changed_only=not terms.changed_only), cursor=(0, 0))


def fix(session: Session) -> Session:
    return session.on_view("fix")


def now(session: Session) -> Session:
    return session.on_view("now")


def full_names(session: Session) -> Session:
    return session.with_look(full_names=not session.look.full_names)


def one_table(session: Session) -> Session:
    return session.with_look(one_table=not session.look.one_table)


def pinned(session: Session, place: int) -> Session:
    """Make a run the baseline; where it is one already, make it none."""
    return against(session, None if session.baseline == place else place)


def against(session: Session, place: int | None) -> Session:
    """Compare with this run, and divide by it where many are compared; None: with no particular one."""
    terms = replace(session.look.terms, baseline=place, more_a=(), more_b=(), notes=())
    return replace(session.with_look(terms=terms), baseline=place)


def next_part(session: Session) -> Session:
    return _step(session, 1)


def previous_part(session: Session) -> Session:
    return _step(session, -1)


def zoom_in(session: Session) -> Session:
    return _zoom(session, 1 / ZOOM)


def zoom_out(session: Session) -> Session:
    return _zoom(session, ZOOM)


def zoom_all(session: Session) -> Session:
    """Show everything; a timeline that does goes back to where it opened."""
    if session.view != "timeline" or session.in_time is None:
        return session.with_look(zoom=None, window=None, steady=False)
    in_sight, whole = session.in_time
    if session.look.window is not None or session.look.steady:
        return session.with_look(zoom=session.info.extent, window=None, steady=False)
    return session.with_look(zoom=None if in_sight == whole else whole)


def pan(session: Session, direction: int) -> Session:
    """Move the part of a timeline that is in sight by a quarter of it."""
    if session.in_time is None:
        return session
    span, extent = session.in_time
    shift = direction * (span[1] - span[0]) // 4
    shift = max(extent[0] - span[0], min(extent[1] - span[1], shift))
    return session.with_look(zoom=(span[0] + shift, span[1] + shift))


def _step(session: Session, direction: int) -> Session:
    """Go to the next baseline of many runs, else to the next layer in focus, else to the next step."""
    if session.view == "compare" and session.baseline is not None:
        return against(session, (session.baseline + direction) % len(session.runs))
    focused = session.look.focused
    if "layer" in focused and session.info.layers:
        layer = _beside(session.info.layers, focused["layer"], direction)
        focus = tuple((k, layer if k == "layer" else v) for k, v in session.look.focus)
        return session.with_look(focus=focus)
    if not session.info.steps:
        return session
    window = session.look.window
    step = _beside(session.info.steps, window[0] if window and window[0] == window[1] else None, direction)
    return session.with_look(window=(step, step), zoom=None, steady=False)


def steady(session: Session) -> Session:
    """Leave out the warm-up, or show it again; nothing changes where no steady state was found."""
    on = session.info.steady and not session.look.steady
    return session.with_look(steady=on, window=None if on else session.look.window)


def _zoom(session: Session, factor: float) -> Session:
    """On a timeline the moments, elsewhere the range of steps."""
    if session.view == "timeline":
        return _zoom_in_time(session, factor)
    steps = session.info.steps
    if not steps:
        return session
    extent = steps[0], steps[-1]
    zoomed = scaled(session.look.window or extent, extent, factor)
    return session.with_look(window=None if zoomed == extent else zoomed)


def _zoom_in_time(session: Session, factor: float) -> Session:
    """Show more or less of the time around the slice under the cursor, else around the middle."""
    if session.in_time is None:
        return session
    span, extent = session.in_time
    middle = None
    if session.look.slice is not None:
        _, start, end = session.look.slice
        seen = max(span[0], start), min(span[1], end)
        middle = sum(seen) / 2 if seen[0] <= seen[1] else None
    return session.with_look(zoom=scaled(span, extent, factor, middle))


def scaled(
    span: tuple[int, int], extent: tuple[int, int], factor: float, around: float | None = None
) -> tuple[int, int]:
    """Return a span made wider or narrower, inside the extent; what is `around` stays where it was in it."""
    place = 0.5 if around is None else (around - span[0]) / max(1, span[1] - span[0])
    middle = (span[0] + span[1]) / 2 if around is None else around
    length = max(1.0, (span[1] - span[0]) * factor)
    low = max(extent[0], round(middle - length * place))
    high = min(extent[1], round(middle + length * (1 - place)))
    return (low, high) if low <= high else span


def _beside(values: Sequence[int], current: Any, direction: int) -> int:
    if current not in values:
        return values[0 if direction > 0 else -1]
    place = values.index(current) + direction
    return values[max(0, min(len(values) - 1, place))]


def _after(values: Sequence[Any], current: Any) -> Any:
    """Return the value after the current one; after the last the first."""
    return values[(values.index(current) + 1) % len(values)] if current in values else values[0]


COMMANDS: Final[Mapping[str, Command]] = {
    f.__name__: f
    for f in (
        group, lens, phase, per, sort, sort_within, reverse, back, fix, now, full_names, one_table, changed,
        next_part, previous_part, zoom_in, zoom_out, zoom_all, steady,
    )
}  # fmt: skip
