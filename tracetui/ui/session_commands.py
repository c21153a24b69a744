"""What keys do to a session: pure functions from session to session, by the name of the command.

Not Textual's methods `action_…`, which change the screen at each key: a burst of these asks one question.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tracetui.look import GROUPS, PERS
from tracetui.ui.session import Session

Command = Callable[[Session], Session]
ZOOM_FACTOR: Final = 2


def cycle_group(session: Session) -> Session:
    """Group by the next of the columns that the run has."""
    choices = [g for g in GROUPS if session.run is None or session.run.has(g)]
    group = _find_next(choices, session.look.group or "name")
    return session.with_look(group=group, sort=None, then=(), cursor=(0, 0))


def cycle_lens(session: Session) -> Session:
    """Use the next lens of the run."""
    choices = session.info.lenses
    current = session.look.lens or (choices[0] if choices else None)
    return session.with_look(lens=_find_next(choices, current)) if len(choices) > 1 else session


def cycle_phase(session: Session) -> Session:
    """Show the next phase only; after the last one, all."""
    choices = [None, *session.info.phases]
    return session.with_look(phase=_find_next(choices, session.look.phase))


def cycle_per(session: Session) -> Session:
    """Count per the next unit: in total, per step, per token."""
    return session.with_look(per=_find_next(PERS, session.look.per))


def sort_by_next(session: Session) -> Session:
    """Sort by the next column in sight."""
    columns, (current, _) = session.columns, _find_order(session) or (None, True)
    return sort_by_column(session, _find_next(columns, current)) if columns else session


def sort_by_column(session: Session, column: str) -> Session:
    """Sort by one column: numbers from the largest, text from A."""
    return _with_orders(session, ((column, column not in session.text_columns),))


def sort_or_reverse(session: Session, column: str) -> Session:
    """Sort by one column; if rows are sorted by it already, reverse the order."""
    if session.look.sort_orders[:1] == session.look.sort_orders and session.look.sort == column:
        return reverse_order(session)
    return sort_by_column(session, column)


def sort_further(session: Session, column: str) -> Session:
    """Sort equal rows by one more column; if that is sorted by already, reverse it."""
    look = session.look
    if look.sort is None:
        return sort_by_column(session, column)
    orders = dict(look.sort_orders)
    orders[column] = not orders.get(column, column in session.text_columns)
    return _with_orders(session, tuple(orders.items()))


def sort_within(session: Session) -> Session:
    """Sort equal rows by the next column; called again, by the one after it."""
    look = session.look
    if look.sort is None or len(session.columns) < 2:
        return sort_by_next(session)
    before = look.sort_orders[:-1] if look.then else look.sort_orders
    free = [column for column in session.columns if column not in dict(before)]
    column = _find_next(free, look.sort_orders[-1][0] if look.then else None)
    return _with_orders(session, (*before, (column, column not in session.text_columns)))


def reverse_order(session: Session) -> Session:
    """Reverse the order; of several columns, that of the last."""
    if not session.look.sort_orders:
        column, falls = _find_order(session) or (next(iter(session.columns), None), True)
        return session.with_look(sort=column, descending=not falls, then=(), cursor=(0, 0))
    *before, (column, falls) = session.look.sort_orders
    return _with_orders(session, (*before, (column, not falls)))


def sort_by_default(session: Session) -> Session:
    """Put rows back in the order in which the view gives them."""
    return session.with_look(sort=None, descending=True, then=(), cursor=(0, 0))


def _find_order(session: Session) -> tuple[str, bool] | None:
    """Return the first column that rows are sorted by, chosen or by default, and whether it falls."""
    return next(iter(session.look.sort_orders or session.default_order), None)


def _with_orders(session: Session, orders: Sequence[tuple[str, bool]]) -> Session:
    (column, falls), *then = orders
    return session.with_look(sort=column, descending=falls, then=tuple(then), cursor=(0, 0))


def go_back(session: Session) -> Session:
    """Clear the filter; without one, go one level up."""
    return session.with_look(filter="", cursor=(0, 0)) if session.look.filter else session.go_back()


def toggle_changed_only(session: Session) -> Session:
    """Show only changed rows of a comparison, or all."""
    terms = session.look.terms
    return session.with_look(terms=replace(terms, changed_only=not terms.changed_only), cursor=(0, 0))


def toggle_baseline(session: Session, index: int) -> Session:
    """Make the run of this index the baseline; if it is already, have none."""
    return set_baseline(session, None if session.baseline == index else index)


def set_baseline(session: Session, index: int | None) -> Session:
    """Compare with the run of this index, or, if None, with the default one."""
    terms, sides = replace(session.look.terms, baseline=index), session.sides.without_repeats()
    return replace(session.with_look(terms=terms), baseline=index, sides=sides)


def zoom_to_all(session: Session) -> Session:
    """Show all steps; a timeline that shows all of its time returns to the span on which it opened."""
    if session.view != "timeline" or session.time_spans is None:
        return session.with_look(zoom=None, window=None, steady=False)
    displayed, extent = session.time_spans
    if session.look.window is not None or session.look.steady:
        return session.with_look(zoom=session.info.extent, window=None, steady=False)
    return session.with_look(zoom=None if displayed == extent else extent)


def move_in_time(session: Session, direction: int) -> Session:
    """Move the displayed part of a timeline by a quarter of its length."""
    if session.time_spans is None:
        return session
    span, extent = session.time_spans
    shift = direction * (span[1] - span[0]) // 4
    shift = max(extent[0] - span[0], min(extent[1] - span[1], shift))
    return session.with_look(zoom=(span[0] + shift, span[1] + shift))


def move_part(session: Session, direction: int) -> Session:
    """Move to the next baseline (if many runs are compared), layer (if one is in focus), or step."""
    if session.view == "compare" and session.baseline is not None:
        return set_baseline(session, (session.baseline + direction) % len(session.runs))
    focused = session.look.focus_values
    if "layer" in focused and session.info.layers:
        layer = _find_neighbour(session.info.layers, focused["layer"], direction)
        focus = tuple((k, layer if k == "layer" else v) for k, v in session.look.focus)
        return session.with_look(focus=focus)
    if not session.info.steps:
        return session
    first, last = session.look.window or (None, None)
    step = _find_neighbour(session.info.steps, first if first == last else None, direction)
    return session.with_look(window=(step, step), zoom=None, steady=False)


def toggle_steady(session: Session) -> Session:
    """Hide the warm-up or show it again; nothing changes without a steady state."""
    on = session.info.steady and not session.look.steady
    return session.with_look(steady=on, window=None if on else session.look.window)


def zoom(session: Session, factor: float) -> Session:
    """Show so many times the time of a timeline, elsewhere so many times the steps."""
    steps = session.info.steps
    if session.view == "timeline":
        return _zoom_in_time(session, factor)
    if not steps:
        return session
    extent = steps[0], steps[-1]
    zoomed = zoom_span(session.look.window or extent, extent, factor)
    return session.with_look(window=None if zoomed == extent else zoomed)


def _zoom_in_time(session: Session, factor: float) -> Session:
    """Zoom around the slice under the cursor, or around the middle if it is not displayed."""
    if session.time_spans is None:
        return session
    span, extent = session.time_spans
    middle = None
    if session.look.slice is not None:
        _, start, end = session.look.slice
        low, high = max(span[0], start), min(span[1], end)
        middle = (low + high) / 2 if low <= high else None
    return session.with_look(zoom=zoom_span(span, extent, factor, middle))


def zoom_span(
    span: tuple[int, int], extent: tuple[int, int], factor: float, around: float | None = None
) -> tuple[int, int]:
    """Return a wider or narrower span within the extent, in which `around` keeps its relative position."""
    share = 0.5 if around is None else (around - span[0]) / max(1, span[1] - span[0])
    middle = (span[0] + span[1]) / 2 if around is None else around
    length = max(1.0, (span[1] - span[0]) * factor)
    low = max(extent[0], round(middle - length * share))
    high = min(extent[1], round(middle + length * (1 - share)))
    return (low, high) if low <= high else span


def _find_neighbour(values: Sequence[int], current: Any, direction: int) -> int:
    if current not in values:
        return values[0 if direction > 0 else -1]
    index = values.index(current) + direction
    return values[max(0, min(len(values) - 1, index))]


def _find_next(values: Sequence[Any], current: Any) -> Any:
    """Return the value after the current one, in a circle; the first if it is not among them."""
    return values[(values.index(current) + 1) % len(values)] if current in values else values[0]


COMMANDS: Final[Mapping[str, Command]] = {
    "group": cycle_group,
    "lens": cycle_lens,
    "phase": cycle_phase,
    "per": cycle_per,
    "sort": sort_by_next,
    "sort_within": sort_within,
    "reverse": reverse_order,
    "default_order": sort_by_default,
    "back": go_back,
    "fix": lambda session: session.with_view("fix"),
    "full_names": lambda session: session.with_look(full_names=not session.look.full_names),
    "one_table": lambda session: session.with_look(one_table=not session.look.one_table),
    "changed": toggle_changed_only,
    "next_part": partial(move_part, direction=1),
    "previous_part": partial(move_part, direction=-1),
    "zoom_in": partial(zoom, factor=1 / ZOOM_FACTOR),
    "zoom_out": partial(zoom, factor=ZOOM_FACTOR),
    "zoom_all": zoom_to_all,
    "steady": toggle_steady,
}
