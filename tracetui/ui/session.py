"""The state that keys change: runs, the view, a look per view, remarks, the ways back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec import field as struct_field

from capture.run import Run
from tracetui.compare.run_sides import Sides
from tracetui.look import Look
from tracetui.ui.run_info import RunInfo
from tracetui.views import Focus, ManyFiles, Source, View, are_runs, find_files, list_heads

# These fields of a look hold in every view; the others belong to the view in which they were set.
SHARED_FIELDS: Final = ("lens", "phase", "per", "window", "steady", "zoom", "full_names", "terms")

MOST_PLACES: Final = 64  # that the history keeps

RowKey = tuple[Any, ...]  # the values of the key columns


class RemarkScope(NamedTuple):
    """A view of a run, named so that remarks find it again in every session."""

    source: str  # the file
    run: str  # name of the run in it
    view: str


@dataclass(frozen=True)
class Remarks:
    """Marked rows, in the order of marking, and notes by row."""

    marks: Mapping[RemarkScope, tuple[RowKey, ...]] = field(default_factory=dict)
    notes: Mapping[RemarkScope, Mapping[RowKey, str]] = field(default_factory=dict)

    def with_marks(self, scope: RemarkScope, rows: tuple[RowKey, ...]) -> "Remarks":
        """Return the remarks with exactly these rows of the view marked."""
        return replace(self, marks={**self.marks, scope: rows})

    def with_note(self, scope: RemarkScope, row: RowKey, text: str) -> "Remarks":
        """Return the remarks with a note about a row; an empty text removes the note."""
        notes = {k: v for k, v in self.notes.get(scope, {}).items() if k != row}
        return replace(self, notes={**self.notes, scope: notes | ({row: text} if text else {})})

    def merge(self, other: "Remarks") -> "Remarks":
        """Return both; where both have remarks of a view, ours win."""
        return Remarks({**other.marks, **self.marks}, {**other.notes, **self.notes})


def build_remark_scope(run: Run, view: str) -> RemarkScope:
    """Name a view of a run for its remarks."""
    return RemarkScope(run.log.source, run.name, view)


@dataclass(frozen=True)
class HistoryEntry:
    """A view and its look when the user drilled down from it."""

    view: str
    look: Look


@dataclass(frozen=True, eq=False)
class Session:
    """One state of the screen; a change returns another one."""

    sources: tuple[Source, ...] = ()
    infos: tuple[RunInfo, ...] = ()
    current: int = 0
    baseline: int | None = None
    sides: Sides = field(default_factory=Sides)  # repeats and noise; `list_sources_for` adds the runs
    view: str = "kernels"
    looks: Mapping[str, Look] = field(default_factory=dict)
    trail: tuple[HistoryEntry, ...] = ()
    columns: tuple[str, ...] = ()  # in sight, by which the displayed answer can be sorted
    text_columns: frozenset[str] = frozenset()  # of the answer; sorted from A by default
    default_order: tuple[tuple[str, bool], ...] = ()  # of the answer: columns, and whether each falls
    timeline_window: tuple[int, int, int, int] | None = None  # displayed first and last ns, and of all
    start: Look = field(default_factory=Look)
    chosen_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by view
    remarks: Remarks = field(default_factory=Remarks)
    landing: Focus = ()  # values of the row that the cursor goes to when the view has its answer
    parent: "Session | None" = None  # of a file that was opened from many files

    @property
    def look(self) -> Look:
        return self.looks.get(self.view) or self.build_initial_look(self.view)

    def build_initial_look(self, view: str) -> Look:
        """Return the look of a view that is opened for the first time."""
        marks = self.remarks.marks.get(self.build_remark_scope(view), ())
        return replace(self.start, columns=self.chosen_columns.get(view, ()), chosen=marks)

    def build_remark_scope(self, view: str) -> RemarkScope:
        return build_remark_scope(self.run, view) if self.run is not None else RemarkScope("", "", view)

    @property
    def notes(self) -> Mapping[RowKey, str]:
        """The notes about rows of the current view."""
        return self.remarks.notes.get(self.build_remark_scope(self.view), {})

    @property
    def runs(self) -> Sequence[Run]:
        """The runs, and the heads of many files."""
        return list_heads(self.sources)

    @property
    def run(self) -> Run | None:
        return self.runs[self.current] if self.sources else None

    @property
    def files(self) -> ManyFiles | None:
        """The current source, if it is many files."""
        return find_files(self.sources[self.current : self.current + 1])

    @property
    def info(self) -> RunInfo:
        return self.infos[self.current] if self.infos else RunInfo()

    @property
    def time_spans(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The first and last ns that a timeline shows, and those of the run; None without times."""
        if self.timeline_window is not None:
            return self.timeline_window[:2], self.timeline_window[2:]
        extent = self.info.extent
        return None if extent is None else (self.look.zoom or extent, extent)

    def list_sources_for(self, view: View) -> Sequence[Source]:
        """Return the sources of a view: the current one, the baseline and the current one, or all."""
        sources = tuple(self.sources[i] for i in self.list_indices_for(view))
        if view.run_count == 1 or not are_runs(sources):
            return sources
        sides = self.sides if view.run_count == 2 else self.sides.without_repeats()
        return replace(sides, runs=tuple(sources))

    def list_indices_for(self, view: View) -> tuple[int, ...]:
        """Return the indices of those runs among all."""
        if view.run_count <= 1 or not self.runs:
            return (self.current,) if self.runs else ()
        return self.pair if view.run_count == 2 else tuple(range(len(self.runs)))

    @property
    def pair(self) -> tuple[int, ...]:
        """Indices of baseline and current run; without a baseline, of the current and the first other run."""
        others = [i for i in range(len(self.runs)) if i != self.current]
        if self.baseline is None:
            return tuple(sorted((self.current, *others[:1])))
        return (self.baseline, self.current) if self.baseline != self.current else (self.current, *others[:1])

    def with_runs_in_front(self, more: Sequence[tuple[Run, RunInfo]]) -> "Session":
        """Return the session with more runs before the others, so that the newest run stays the last."""
        sources, infos = (
            (*(run for run, _ in more), *self.sources),
            (*(info for _, info in more), *self.infos),
        )
        current, baseline = self.current + len(more), self.baseline
        baseline = None if baseline is None else baseline + len(more)
        return replace(self, sources=sources, infos=infos, current=current, baseline=baseline)

    def with_look(self, **change: Any) -> "Session":
        """Return the session with fields of the look changed; those in SHARED_FIELDS change in every view."""
        shared = {k: v for k, v in change.items() if k in SHARED_FIELDS}
        looks = {name: replace(look, **shared) for name, look in self.looks.items()}
        looks[self.view] = replace(self.look, **change)
        remarks = self.remarks
        if "chosen" in change and not self.trail:
            remarks = remarks.with_marks(self.build_remark_scope(self.view), change["chosen"])
        return replace(self, looks=looks, start=replace(self.start, **shared), remarks=remarks)

    def with_columns(self, columns: tuple[str, ...]) -> "Session":
        """Return the session with other columns in the current view."""
        chosen = {**self.chosen_columns, self.view: columns}
        return replace(self.with_look(columns=columns), chosen_columns=chosen)

    def with_view(self, view: str) -> "Session":
        """Return the session on another view, out of all rows that were entered."""
        shared = {name: getattr(self.look, name) for name in SHARED_FIELDS}
        left = self
        while left.trail:
            left = left.go_back()
        looks = {name: replace(look, **shared) for name, look in left.looks.items()}
        return replace(left, view=view, looks=looks, landing=())

    def with_row(self, view: str, row: Focus) -> "Session":
        """Return the session on another view, where the cursor goes to the row with these values."""
        return replace(self.with_view(view), landing=row)

    def drill_down(self, view: str, focus: Focus) -> "Session":
        """Return the session one level deeper: a view on `focus`, within the focus so far."""
        trail = (*self.trail, HistoryEntry(self.view, self.look))
        values = {**self.look.focus_values, **dict(focus)}
        look = replace(self.build_initial_look(view), focus=tuple(values.items()), group=None, sort=None,
                       filter="", cursor=(0, 0), slice=None, chosen=())  # fmt: skip
        return replace(self, view=view, looks={**self.looks, view: look}, trail=trail)

    def show_span(self, begin: int, end: int) -> "Session":
        """Return the session one level deeper: on the timeline of this time, and as much on either side."""
        length = end - begin
        session = self.drill_down("timeline", ())
        look = replace(session.look, zoom=(begin - length, end + length), window=None, steady=False)
        return replace(session, looks={**session.looks, "timeline": look})

    def go_back(self) -> "Session":
        """Return the session one level up, as it was left; the session itself at the top."""
        if not self.trail:
            return self._leave_file()
        *rest, last = self.trail
        looks = {**self.looks, last.view: last.look}
        if self.view != last.view:
            looks.pop(self.view, None)
        return replace(self, view=last.view, looks=looks, trail=tuple(rest))

    def with_file(self, current: int, view: str) -> "Session":
        """Return the session on one of many files, with a way back to all of them."""
        return replace(self.with_run(current).with_view(view), parent=self)

    def _leave_file(self) -> "Session":
        files = find_files(self.sources)
        if self.parent is None or files is None:
            return self
        looks, trail, start = self.parent.looks, self.parent.trail, self.parent.start
        view, columns, current = self.parent.view, self.parent.columns, self.sources.index(files)
        return replace(self, current=current, view=view, looks=looks, trail=trail, start=start,
                       columns=columns, parent=None)  # fmt: skip

    def with_run(self, current: int) -> "Session":
        """Return the session on another run, in the same view; steps, times and focus are reset."""
        marks = self.remarks.marks.get(build_remark_scope(self.runs[current], self.view), self.look.chosen)
        look = replace(self.look, chosen=marks, cursor=(0, 0), window=None, steady=False, zoom=None,
                       slice=None, focus=())  # fmt: skip
        start = replace(self.start, window=None, steady=False, zoom=None)
        return replace(self, current=current, sides=self.sides.without_repeats(),
                       looks={self.view: look}, trail=(), start=start, parent=None)  # fmt: skip

    def with_snapshots(self, sources: Sequence[Source], infos: Sequence[RunInfo]) -> "Session":
        """Return the session with newer snapshots of its runs; it stays on the newest run if it was there."""
        was_newest = bool(self.sources) and self.current == len(self.sources) - 1
        current = len(sources) - 1 if was_newest else min(self.current, max(0, len(sources) - 1))
        return replace(self, sources=tuple(sources), infos=tuple(infos), current=current)


class Place(Struct, frozen=True, eq=False):
    """A view of a run with the looks of all views; runs are kept by name, since they may grow."""

    run: tuple[str, str]  # file and name of the run
    view: str
    looks: Mapping[str, Look]
    trail: tuple[HistoryEntry, ...]

    @classmethod
    def from_session(cls, session: Session) -> "Place":
        run = session.run
        name = (run.log.source, run.name) if run is not None else ("", "")
        return cls(name, session.view, session.looks, session.trail)

    def is_at(self, other: "Place") -> bool:
        """Whether both are the same place: run, view, entered rows; filter and cursor may differ."""
        return (self.run, self.view, self._entered_rows) == (other.run, other.view, other._entered_rows)

    @property
    def _entered_rows(self) -> tuple[object, ...]:
        look = self.looks.get(self.view)
        return look.focus if look is not None else ()

    def restore(self, session: Session) -> Session | None:
        """Return the session at this place; None if its run is no longer open."""
        runs = [(run.log.source, run.name) for run in session.runs]
        if self.run not in runs:
            return None
        looks = {**session.looks, **self.looks}
        return replace(session, current=runs.index(self.run), view=self.view, looks=looks, trail=self.trail)


class PlaceHistory(Struct):
    """Places before and after the present one, nearest last."""

    back: list[Place] = struct_field(default_factory=list)
    forward: list[Place] = struct_field(default_factory=list)

    def leave(self, before: Session, after: Session) -> None:
        """Note the place that is left, if another one is entered; there is no way forward from there."""
        old, new = Place.from_session(before), Place.from_session(after)
        if before.runs and not old.is_at(new):
            self.back = [*self.back, old][-MOST_PLACES:]
            self.forward.clear()

    def go_back(self, session: Session) -> Session | None:
        """Return the session at the place before; None if there is none."""
        return _move(session, self.back, self.forward)

    def go_forward(self, session: Session) -> Session | None:
        """Return the session at the place that was left by going back; None if there is none."""
        return _move(session, self.forward, self.back)


def _move(session: Session, source: list[Place], target: list[Place]) -> Session | None:
    here = Place.from_session(session)
    while source:
        moved = source.pop().restore(session)
        if moved is not None:
            target.append(here)
            return moved
    return None
