"""How a person looks at a run: sort, filter, group, window, lens. A key replaces one field."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from capture.errors import UsageError

if TYPE_CHECKING:
    from capture.run import Run

Per = Literal["total", "step", "token"]

GROUPS: Final = ("name", "op", "layer", "phase", "category", "shape", "line", "track", "path", "step")
RANKINGS: Final = ("suspicion", "p_mu", "z_mu", "d_mu", "d_beta")  # of cycle statistics
PERS: Final[tuple[Per, ...]] = ("total", "step", "token")


class Term(NamedTuple):
    """One condition of a filter: a column, how it is compared (`~`: regular expression), and with what."""

    column: str
    how: str
    value: str


@dataclass(frozen=True)
class Link:
    """Two rows that a person knows to be the same work, in files whose names fit these patterns."""

    a: str
    b: str
    file_a: str = "*"
    file_b: str = "*"


@dataclass(frozen=True)
class Floor:
    """How far runs of the same thing lie apart: one standard deviation of the logarithm of a time."""

    spread: float = 0.05  # where nobody knows
    freedom: float = math.inf  # degrees of freedom: of a spread that was measured one less than its runs
    how: str = ""  # where it is from, in words; empty where it is assumed

    @property
    def known(self) -> bool:
        """Tell whether it was measured, or said by a person."""
        return bool(self.how)

    @property
    def percent(self) -> str:
        """Return the floor in words."""
        return f"{100 * self.spread:.2g}%"


@dataclass(frozen=True)
class Terms:
    """The terms on which runs are compared."""

    align: Literal["context", "step"] = "context"
    threshold: float = 0.01  # the smallest change that matters, as a share of the row
    more_a: tuple["Run", ...] = ()  # further runs of either side: repeats of the same thing
    more_b: tuple["Run", ...] = ()
    same: tuple["Run", ...] = ()  # identical runs: what they differ by is this machine's own noise
    floor: Floor = Floor()  # of one run a side
    share: float = 1.0  # of the chance of error in all, what this look at recordings that grow may use
    notes: tuple[str, ...] = ()  # how it was settled which runs count, and as what
    links: tuple[Link, ...] = ()
    ranks_apart: bool = False  # all runs are of the same ranks, whose rows are compared each with its own
    forced: bool = False  # shown although the two should not be compared
    changed_only: bool = False  # leave out rows that are the same, or undecided
    ranking: str = "suspicion"  # of cycle statistics
    baseline: int | None = None  # of a comparison of many runs: the one that all are divided by
    of: str = "kernels"  # the view whose rows are compared over many runs
    value: str = ""  # and the column of it; empty: the one that says how much

    @property
    def repeated(self) -> bool:
        """Tell whether some run was made more than once."""
        return bool(self.more_a or self.more_b or len(self.same) > 1)

    @property
    def trusted(self) -> bool:
        """Tell whether it is known by what runs of the same differ: a gate may fail."""
        return self.repeated or self.floor.known


@dataclass(frozen=True)
class Look:
    """Everything that a view may be asked, beside the runs themselves."""

    sort: str | None = None  # a column of the answer; None: the view's own order
    descending: bool = True
    then: tuple[tuple[str, bool], ...] = ()  # how equal rows are ordered: column, whether it falls
    filter: str = ""  # a regular expression on names and ops, with terms: see filters
    where: tuple[Term, ...] = ()  # the terms of the filter on events, once it is taken apart
    group: str | None = None  # None: the grouping that the view prefers
    lens: str | None = None  # None: the lens that the view picks and names
    phase: str | None = None
    per: Per = "total"
    window: tuple[int, int] | None = None  # first and last step that count
    steady: bool = False  # only the steps of each run's steady state count
    focus: tuple[tuple[str, Any], ...] = ()  # the row that was entered: key column, value, or several of it
    chosen: tuple[tuple[Any, ...], ...] = ()  # rows picked for a chart, by their keys
    zoom: tuple[int, int] | None = None  # first and last ns on the timeline
    cursor: tuple[int, int] = (0, 0)  # row, column in a drawing that has cells
    slice: tuple[int, int, int] | None = None  # under the cursor of a timeline: its lane, start and end in ns
    what_if: tuple[tuple[str, float], ...] = ()  # ops, and what their durations are multiplied by
    full_names: bool = False
    columns: tuple[str, ...] = ()  # those a person chose to see; empty: what the view thinks best
    one_table: bool = False  # also where two would fit side by side
    limit: int | None = None
    merged: bool = False  # of many files: they are ranks of one run, and the answer is that of the run
    terms: Terms = Terms()

    @property
    def focus_words(self) -> list[str]:
        """Return what was entered, in words; of several forms of one name the longest."""
        plain = ((k, max(v, key=len) if isinstance(v, tuple) else v) for k, v in self.focus)
        return [f"{k} {v if v is not None else 'unknown'}" for k, v in plain]

    @property
    def orders(self) -> tuple[tuple[str, bool], ...]:
        """Return the columns that rows are sorted by, the first one first, and whether each falls."""
        return () if self.sort is None else ((self.sort, self.descending), *self.then)

    @property
    def partial(self) -> bool:
        """Tell whether only some of the kernels are asked for, so that the rest of the time is not theirs."""
        return bool(self.filter or self.where or self.focus)

    @property
    def focused(self) -> dict[str, Any]:
        """Return what was entered, by column."""
        return dict(self.focus)


def focus_of(text: str) -> tuple[str, Any]:
    """Return the key column and the value of a row, from text like layer=3, else raise UsageError."""
    column, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--focus {text!r} names no value", todo="write it like name=attention")
    return column, int(value) if column in ("layer", "step") and value.isdecimal() else value
