"""What is open and how it is looked at: runs, the current one, a look per view, the way back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from capture.run import Run
from tracetui.look import Look
from tracetui.ui.run_info import Facts
from tracetui.views import Focus, View

# How a person stands to the runs; what only one view means stays with that view.
SHARED: Final = ("lens", "phase", "per", "window", "zoom", "full_names", "terms")


@dataclass(frozen=True)
class Place:
    """Where a person was: a view and how it was looked at."""

    view: str
    look: Look


@dataclass(frozen=True, eq=False)
class Session:
    """One moment of the screen; a key gives the next one."""

    runs: tuple[Run, ...] = ()
    facts: tuple[Facts, ...] = ()
    current: int = 0
    baseline: int | None = None
    view: str = "kernels"
    looks: Mapping[str, Look] = field(default_factory=dict)
    trail: tuple[Place, ...] = ()
    columns: tuple[str, ...] = ()  # what the answer in sight can be sorted by
    start: Look = field(default_factory=Look)

    @property
    def look(self) -> Look:
        return self.looks.get(self.view, self.start)

    @property
    def run(self) -> Run | None:
        return self.runs[self.current] if self.runs else None

    @property
    def fact(self) -> Facts:
        return self.facts[self.current] if self.facts else Facts()

    def asked(self, view: View) -> tuple[Run, ...]:
        """The runs that a view is asked about: the current one, it after the baseline, or all."""
        return tuple(self.runs[i] for i in self.places(view))

    def places(self, view: View) -> tuple[int, ...]:
        """Where they stand among the runs."""
        if view.runs <= 1 or not self.runs:
            return (self.current,) if self.runs else ()
        return self.pair if view.runs == 2 else tuple(range(len(self.runs)))

    @property
    def pair(self) -> tuple[int, ...]:
        """Baseline and current run; where no baseline is chosen yet, the first run and another one."""
        others = [i for i in range(len(self.runs)) if i != self.current]
        if self.baseline is None:
            return tuple(sorted((self.current, *others[:1])))
        return (self.baseline, self.current) if self.baseline != self.current else (self.current, *others[:1])

    def beside(self, more: Sequence[tuple[Run, Facts]]) -> "Session":
        """With more runs in front of the others, so that the newest stays the last."""
        count = len(more)
        baseline = None if self.baseline is None else self.baseline + count
        return replace(
            self,
            runs=(*(run for run, _ in more), *self.runs),
            facts=(*(fact for _, fact in more), *self.facts),
            current=self.current + count,
            baseline=baseline,
        )

    def looking(self, **change: Any) -> "Session":
        """The session after a change of the look; what is shared changes in every view."""
        shared = {k: v for k, v in change.items() if k in SHARED}
        looks = {name: replace(look, **shared) for name, look in self.looks.items()}
        looks[self.view] = replace(self.look, **change)
        return replace(self, looks=looks, start=replace(self.start, **shared))

    def at(self, view: str) -> "Session":
        """Another view, by its tab: no way back is needed."""
        return replace(self, view=view, trail=())

    def into(self, view: str, focus: Focus) -> "Session":
        """One level in: the view opens on what was focused, inside what was in focus before."""
        trail = (*self.trail, Place(self.view, self.look))
        inside = tuple({**self.look.focused, **dict(focus)}.items())
        fresh = replace(self.start, focus=inside, group=None, sort=None, filter="", cursor=(0, 0), chosen=())
        return replace(self, view=view, looks={**self.looks, view: fresh}, trail=trail)

    def out(self) -> "Session":
        """One level out, as it was left."""
        if not self.trail:
            return self
        *rest, last = self.trail
        looks = {**self.looks, last.view: last.look}
        if self.view != last.view:
            looks.pop(self.view, None)
        return replace(self, view=last.view, looks=looks, trail=tuple(rest))

    def on(self, current: int) -> "Session":
        """Another run, in the same view; a step, layer or moment of the old one means nothing there."""
        terms = replace(self.look.terms, more_a=(), more_b=(), notes=())
        fresh = replace(self.look, cursor=(0, 0), window=None, zoom=None, focus=(), terms=terms)
        start = replace(self.start, window=None, zoom=None, terms=terms)
        return replace(self, current=current, looks={self.view: fresh}, trail=(), start=start)

    def with_runs(self, runs: Sequence[Run], facts: Sequence[Facts]) -> "Session":
        """Newer snapshots of the runs; the looks stay."""
        newest = bool(self.runs) and self.current == len(self.runs) - 1  # who looks at it goes with it
        current = len(runs) - 1 if newest else min(self.current, max(0, len(runs) - 1))
        return replace(self, runs=tuple(runs), facts=tuple(facts), current=current)


def same_question(old: Session, new: Session) -> bool:
    """Whether the answer in sight still answers: only how it is drawn has changed."""
    if (old.view, old.current, old.baseline, old.runs) != (new.view, new.current, new.baseline, new.runs):
        return False
    return _asked(old.look) == _asked(new.look)


def _asked(look: Look) -> Look:
    """The look without what only a drawing depends on."""
    terms = replace(look.terms, forced=False)
    return replace(look, cursor=(0, 0), full_names=False, columns=(), one_table=False, terms=terms)
