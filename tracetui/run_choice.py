"""Select the run of a file by number or name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from capture.errors import UsageError

if TYPE_CHECKING:
    from capture.run import Run


def resolve_run_index(runs: "Sequence[Run]", which: str | None) -> int:
    """Return the index of the run named by a number from one, its name, or a part of it; 0 for None.

    Raise UsageError if no run or several runs match. A number is never matched against a part of a name.
    """
    if which is None:
        return 0
    if which.isdecimal() and 1 <= int(which) <= len(runs):
        return int(which) - 1
    places = [i for i, r in enumerate(runs) if r.name == which]
    if not places and not which.isdecimal():
        places = [i for i, r in enumerate(runs) if which.lower() in r.name.lower()]
    if len(places) == 1:
        return places[0]
    what = f"{len(places)} runs are called" if places else "no run is called"
    raise UsageError(f"{what} {which!r}", todo=f"the runs are {format_run_names(runs)}")


def format_run_names(runs: "Sequence[Run]") -> str:
    """Return the names of the runs, each with its number: 1: warm-up, 2: decode."""
    return ", ".join(f"{number}: {run.name}" for number, run in enumerate(runs, 1))
