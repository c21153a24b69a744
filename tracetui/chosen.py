"""Which of the runs of a file is meant."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from capture.errors import UsageError

if TYPE_CHECKING:
    from capture.run import Run


def choose(runs: "Sequence[Run]", which: str | None) -> int:
    """Return the place of the run that is meant, by number from one or by a part of its name. Raise
    UsageError where it is none or several; a number is a place or a whole name, never a part of one.
    """
    if which is None:
        return 0
    if which.isdecimal() and 1 <= int(which) <= len(runs):
        return int(which) - 1
    places = [i for i, r in enumerate(runs) if r.name == which] or _by_part(runs, which)
    if len(places) == 1:
        return places[0]
    names = ", ".join(f"{i}: {r.name}" for i, r in enumerate(runs, 1))
    what = f"{len(places)} runs are called" if places else "no run is called"
    raise UsageError(f"{what} {which!r}", todo=f"the runs are {names}")


def _by_part(runs: "Sequence[Run]", which: str) -> list[int]:
    return [] if which.isdecimal() else [i for i, r in enumerate(runs) if which.lower() in r.name.lower()]
