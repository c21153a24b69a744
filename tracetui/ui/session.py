"""What is open and how it is looked at: runs, the current one, a look per view, the way back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from capture.run import Run
from tracetui.look import Look
from tracetui.ui.remarks import Remarks, Row, Where, known_as
from tracetui.ui.run_info import RunInfo
from tracetui.views import Focus, ManyFiles, View

# These fields of a look hold in every view; the others stay with the view in which they were chosen.
SHARED: Final = ("lens", "phase", "per", "window", "steady", "zoom", "full_names", "terms")


@dataclass(frozen=True)
class Place:
    """A view and how it was looked at when it was left for what is inside a row."""

    view: str
    look: Look


@dataclass(frozen=True, eq=False)
class Session:
    """One state of the screen; every change returns another one."""

    runs: tuple[Run, ...] = ()
    infos: tuple[RunInfo, ...] = ()
    current: int = 0
    baseline: int | None = None
    view: str = "kernels"
    looks: Mapping[str, Look] = field(default_factory=dict)
    trail: tuple[Place, ...] = ()
    columns: tuple[str, ...] = ()  # what the answer in sight can be sorted by
    of_text: frozenset[str] = frozenset()  # of these: sorted from A where no other order is asked for
    moments: tuple[int, int, int, int] | None = None  # first and last ns in sight on a timeline, and of all
    start: Look = field(default_factory=Look)
    own_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of a view, as a person chose
    remarks: Remarks = field(default_factory=Remarks)  # marked rows and notes
    behind: "Session | None" = None  # of a file that was opened from many: what was looked at then

    @property
    def look(self) -> Look:
        return self.looks.get(self.view) or self.fresh(self.view)

    def fresh(self, view: str) -> Look:
        """Return how a view is looked at that was not in sight yet."""
        marks = self.remarks.marks.get(self.where(view), ())
        return replace(self.start, columns=self.own_columns.get(view, ()), chosen=marks)

    def where(self, view: str) -> Where:
        """Return what a view of the current run is known by, in this session and in others."""
        return known_as(self.run, view) if self.run is not None else Where("", "", view)

    @property
    def notes(self) -> Mapping[Row, str]:
        """Return the notes about rows of the view in sight."""
        return self.remarks.notes.get(self.where(self.view), {})

    @property
    def run(self) -> Run | None:
        return self.runs[self.current] if self.runs else None

    @property
    def info(self) -> RunInfo:
        return self.infos[self.current] if self.infos else RunInfo()

    @property
    def in_time(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Return the first and last ns that a timeline shows, and those of all; None without times."""
        if self.moments is not None:
            return self.moments[:2], self.moments[2:]
        extent = self.info.extent
        return None if extent is None else (self.look.zoom or extent, extent)

    def runs_for(self, view: View) -> tuple[Run, ...]:
        """Return the runs that a view is asked about: the current one, it after the baseline, or all."""
        return tuple(self.runs[i] for i in self.indices_for(view))

    def indices_for(self, view: View) -> tuple[int, ...]:
        """Return the positions of those runs among all."""
        if view.runs <= 1 or not self.runs:
            return (self.current,) if self.runs else ()
        return self.pair if view.runs == 2 else tuple(range(len(self.runs)))

    @property
    def pair(self) -> tuple[int, ...]:
        """Baseline and current run; where no baseline is chosen, the first run and another one."""
        others = [i for i in range(len(self.runs)) if i != self.current]
        if self.baseline is None:
            return tuple(sorted((self.current, *others[:1])))
        return (self.baseline, self.current) if self.baseline != self.current else (self.current, *others[:1])

    def with_runs_in_front(self, more: Sequence[tuple[Run, RunInfo]]) -> "Session":
        """Return the session with more runs before the others, so that the newest stays the last."""
        count = len(more)
        baseline = None if self.baseline is None else self.baseline + count
        return replace(
            self,
            runs=(*(run for run, _ in more), *self.runs),
            infos=(*(info for _, info in more), *self.infos),
            current=self.current + count,
            baseline=baseline,
        )

    def with_look(self, **change: Any) -> "Session":
        """Return the session with some fields of the look changed; those in SHARED change in every view."""
        shared = {k: v for k, v in change.items() if k in SHARED}
        looks = {name: replace(look, **shared) for name, look in self.looks.items()}
        looks[self.view] = replace(self.look, **change)
        remarks = self.remarks
        if "chosen" in change and not self.trail:
            remarks = remarks.marked(self.where(self.view), change["chosen"])
        return replace(self, looks=looks, start=replace(self.start, **shared), remarks=remarks)

    def with_columns(self, columns: tuple[str, ...]) -> "Session":
        """Return the session with other columns of the view in sight, from now on."""
        own = {**self.own_columns, self.view: columns}
        return replace(self.with_look(columns=columns), own_columns=own)

    def on_view(self, view: str) -> "Session":
        """Return the session on another view, without a way back."""
        return replace(self, view=view, trail=())

    def inside(self, view: str, focus: Focus) -> "Session":
        """Return the session one level in: the view opens on the focus, inside what was in focus before."""
        trail = (*self.trail, Place(self.view, self.look))
        inside = tuple({**self.look.focused, **dict(focus)}.items())
        fresh = replace(
            self.fresh(view),
            focus=inside,
            group=None,
            sort=None,
            filter="",
            cursor=(0, 0),
            slice=None,
            chosen=(),
        )
        return replace(self, view=view, looks={**self.looks, view: fresh}, trail=trail)

    def outside(self) -> "Session":
        """Return the session one level out, as it was left; itself where there is no such level."""
        if not self.trail:
            return self._out_of_file()
        *rest, last = self.trail
        looks = {**self.looks, last.view: last.look}
        if self.view != last.view:
            looks.pop(self.view, None)
        return replace(self, view=last.view, looks=looks, trail=tuple(rest))

    def in_file(self, current: int, view: str) -> "Session":
        """Return the session on a run that is one of the many files in sight, with the way back to them."""
        return replace(self.on_run(current).on_view(view), behind=self)

    def _out_of_file(self) -> "Session":
        many = [i for i, run in enumerate(self.runs) if isinstance(run, ManyFiles)]
        if self.behind is None or not many:
            return self
        looks, trail, start = self.behind.looks, self.behind.trail, self.behind.start
        view, columns = self.behind.view, self.behind.columns
        return replace(self, current=many[0], view=view, looks=looks, trail=trail, start=start,
                       columns=columns, behind=None)  # fmt: skip

    def on_run(self, current: int) -> "Session":
        """Return the session on another run, in the same view.

        A step, layer or moment of the old run means nothing there and is forgotten.
        """
        terms = replace(self.look.terms, more_a=(), more_b=(), notes=())
        marks = self.remarks.marks.get(known_as(self.runs[current], self.view), self.look.chosen)
        fresh = replace(
            self.look,
            chosen=marks,
            cursor=(0, 0),
            window=None,
            steady=False,
            zoom=None,
            slice=None,
            focus=(),
            terms=terms,
        )
        start = replace(self.start, window=None, steady=False, zoom=None, terms=terms)
        return replace(self, current=current, looks={self.view: fresh}, trail=(), start=start, behind=None)

    def with_snapshots(self, runs: Sequence[Run], infos: Sequence[RunInfo]) -> "Session":
        """Return the session with newer snapshots of its runs; who looks at the newest run goes with it."""
        newest = bool(self.runs) and self.current == len(self.runs) - 1
        current = len(runs) - 1 if newest else min(self.current, max(0, len(runs) - 1))
        return replace(self, runs=tuple(runs), infos=tuple(infos), current=current)
