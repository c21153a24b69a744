"""Options of a view: sort, filter, group, steps, lens. A key on the screen replaces one field.

The field names of `Look` are the keyword arguments of the Python API:
`tracetui.load(f).kernels(phase="decode")`.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from capture.errors import UsageError

Per = Literal["total", "step", "token"]

GROUPS: Final = ("name", "op", "layer", "phase", "category", "shape", "line", "track", "path", "step")
CYCLE_RANKINGS: Final = ("suspicion", "p_mu", "z_mu", "d_mu", "d_beta")  # of cycle statistics
PERS: Final[tuple[Per, ...]] = ("total", "step", "token")


class FilterTerm(NamedTuple):
    """One condition of a filter: a column, an operator (`~`: regular expression), and a value."""

    column: str
    how: str
    value: str


class RowLink(Struct, frozen=True):
    """Two rows that the user linked as the same work, in files whose names match these patterns."""

    a: str
    b: str
    file_a: str = "*"
    file_b: str = "*"


@dataclass(frozen=True)
class Terms:
    """Terms on which runs are compared."""

    align: Literal["context", "step"] = "context"
    threshold: float = 0.01  # smallest relevant change, as a share of the row
    share: float = 1.0  # share of alpha that this interim look may use
    links: tuple[RowLink, ...] = ()
    ranks_apart: bool = False  # all runs have the same ranks: compare rank by rank
    forced: bool = False  # compare although the runs are not comparable
    changed_only: bool = False  # hide rows that are the same, or undecided
    ranking: str = "suspicion"  # of cycle statistics
    baseline: int | None = None  # of many runs: divide all by this one
    of: str = "kernels"  # of many runs: the view whose rows are compared
    value: str = ""  # its column; empty: the first amount


class Price(NamedTuple):
    """What the machine of a run costs: an amount per hour, and the sign of its currency if there is one."""

    per_hour: float
    currency: str = ""

    def __str__(self) -> str:
        return f"{self.currency}{self.per_hour:g}/h"


@dataclass(frozen=True)
class Look:
    """Everything that a view may be asked for, besides the runs."""

    sort: str | None = None  # column of the answer; None: the order of the view
    descending: bool = True
    then: tuple[tuple[str, bool], ...] = ()  # further sort columns, and whether each is descending
    filter: str = ""  # regular expression and terms, see filter_syntax
    where: tuple[FilterTerm, ...] = ()  # terms of the filter on events, once it is parsed
    group: str | None = None  # None: default of the view
    lens: str | None = None  # None: chosen and noted by the view
    phase: str | None = None
    per: Per = "total"
    window: tuple[int, int] | None = None  # first and last step
    steady: bool = False  # only the steady state of each run
    focus: tuple[tuple[str, Any], ...] = ()  # the entered row: key column, value (or several)
    chosen: tuple[tuple[Any, ...], ...] = ()  # rows selected for a chart, by key
    zoom: tuple[int, int] | None = None  # first and last ns on the timeline
    cursor: tuple[int, int] = (0, 0)  # row, column in a drawing that has cells
    slice: tuple[int, int, int] | None = None  # at the cursor of a timeline: lane, start, end in ns
    what_if: tuple[tuple[str, float], ...] = ()  # op, factor of its duration
    full_names: bool = False
    columns: tuple[str, ...] = ()  # selected by the user; empty: by the view
    one_table: bool = False  # even if two would fit side by side
    limit: int | None = None
    merged: bool = False  # many files are the ranks of one run
    price: Price | None = None  # of the machine
    terms: Terms = Terms()

    @property
    def focus_labels(self) -> list[str]:
        """The entered row as text; of several forms of a name the longest."""
        return [f"{k} {format_focus_value(v)}" for k, v in self.focus]

    @property
    def sort_orders(self) -> tuple[tuple[str, bool], ...]:
        """Columns to sort by, most significant first, and whether each is descending."""
        return () if self.sort is None else ((self.sort, self.descending), *self.then)

    @property
    def is_partial(self) -> bool:
        """Whether only some kernels are selected, so that the remaining time is not theirs."""
        return bool(self.filter or self.where or self.focus)

    @property
    def focus_values(self) -> dict[str, Any]:
        """The entered row: value by column."""
        return dict(self.focus)


def format_focus_value(value: Any) -> str:
    """Return the value of an entered row as text: all numbers, or of several forms of a name the longest."""
    if isinstance(value, tuple) and value:
        return " and ".join(map(str, value)) if isinstance(value[0], int) else max(value, key=len)
    return "unknown" if value is None else str(value)


def parse_focus(text: str) -> tuple[str, Any]:
    """Parse `layer=3`, or the pair `step=3,4`, into column and value; raise UsageError for anything else."""
    column, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--focus {text!r} has no value", todo="write name=attention")
    numbers = value.split(",") if column in ("step", "number") else [value]
    if column not in ("layer", "step", "number") or not all(part.isdecimal() for part in numbers):
        return column, value
    return column, int(value) if len(numbers) == 1 else tuple(map(int, numbers))
