"""How the screen begins: which run, which view, which look."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracetui.ui.options import Options
from tracetui.ui.session import Session
from tracetui.views import View, missing

FIRST: Final = ("summary", "kernels")


@dataclass(frozen=True)
class Start:
    """A session to begin with, and what has to be told about it."""

    session: Session
    told: str = ""


def opened(session: Session, views: Sequence[View], options: Options) -> Start:
    """The run and the view that were asked for; where they are not there, the nearest, and why."""
    current, told = _run(session, options.run)
    baseline = _run(session, options.baseline)[0] if options.baseline else None
    if options.beside:
        current, baseline = len(session.runs) - 1, 0
    session = replace(session, current=current, baseline=baseline)
    return Start(replace(session, view=_view(session, views, options.view)), told)


def _run(session: Session, asked: str | None) -> tuple[int, str]:
    if asked is None:
        return 0, ""
    if asked.isdecimal() and 1 <= int(asked) <= len(session.runs):
        return int(asked) - 1, ""
    exact = [i for i, r in enumerate(session.runs) if r.name == asked]
    found = exact or [i for i, r in enumerate(session.runs) if asked.lower() in r.name.lower()]
    return (found[0], "") if found else (0, f"no run is called {asked!r}; r lists them")


def _view(session: Session, views: Sequence[View], asked: str) -> str:
    names = [v.name for v in views]
    if asked in names:
        return asked
    fed = [v.name for v in views if not missing(v, session.runs[session.current :][:1])]
    return next((n for n in (*FIRST, *fed) if n in fed), names[0])
