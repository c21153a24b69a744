"""Every view, one module each: what to ask the runs, and how to draw the answer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, cast

import polars as pl

from capture.errors import UsageError
from capture.nearest import did_you_mean
from capture.run import Run
from capture.unheard import unheard
from tracetui import cancel, filters
from tracetui.analysis import select, steady
from tracetui.analysis.partial.algebra import Partial, Shape
from tracetui.look import Look
from tracetui.views.ink import Line, Size

# A view is one module here and one line in this tuple; the order is the order of the tabs.
VIEWS: Final = (
    "summary",
    "kernels",
    "growth",
    "layers",
    "steps",
    "tree",
    "timeline",
    "shapes",
    "memory",
    "counters",
    "ranks",
    "rankmap",
    "training",
    "fix",
    "now",
    "roofline",
    "log",
    "tables",
    "sections",
    "imported",
    "detail",
    "calls",
    "diff",
    "waterfall",
    "curves",
    "shifts",
    "cycles",
    "findings",
    "compare",
    "pair",
    "sides",
)
_RENAMED: Final = {"imported": "import"}  # which Python keeps for itself

MANY: Final = 1 << 20  # runs of a view that takes as many as there are

_TOLD: Final = (  # what of a run's meta says that columns are not the source's own, and which columns
    ("inferred", frozenset({"layer", "op"})),
    ("inferred_steps", frozenset({"step"})),
    ("captured", frozenset({"layer", "op", "shape", "roof_share"})),
)

Focus = tuple[tuple[str, Any], ...]
Slice = tuple[int, int, int]  # of a timeline: lane, start and end in ns


@dataclass(frozen=True, eq=False)
class Answer:
    """Rows, with the notes without which they would mislead."""

    rows: pl.DataFrame
    notes: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # columns that name a row: what Enter drills by
    parts: Mapping[str, pl.DataFrame] = field(default_factory=dict)  # further frames that a drawing needs
    columns: tuple[str, ...] = ()  # by falling importance, where the view's own order does not fit
    dress: "Dress | None" = None  # likewise
    leading: int = 0  # how many of the notes are the answer itself: a report has them above the rows
    doubts: tuple[str, ...] = ()  # reasons not to believe the rows, which a screen shows before them
    missing: tuple[str, ...] = ()  # columns the source lacks, when it cannot feed the view


@dataclass(frozen=True, eq=False)
class Merging:
    """How one answer about many files is made: what each contributes is merged, then finished."""

    partial: Callable[[Run, Look], Mapping[str, pl.DataFrame]]  # small frames; `members`: a row of facts
    shapes: Mapping[str, Shape]  # of these frames: their keys and rules
    finish: Callable[[Partial, Look], Answer]  # of at least two runs: that of one is the view's own answer
    needs: frozenset[str] = frozenset()  # of each run; one that lacks it contributes nothing
    by_track: bool = False  # rows of different tracks stay apart: they are those of each file's rank


Tones = Callable[[pl.DataFrame], Mapping[str, Sequence[str]]]  # of some rows: column → a style for each


@dataclass(frozen=True)
class Dress:
    """What a table shows beside its numbers: colours, and the same in signs and words."""

    tones: Tones
    bar: str = ""  # the column that is drawn as a signed bar too
    sides: tuple[tuple[str, ...], ...] = ()  # columns side by side where there is room: a | change | b
    legend: Callable[[pl.DataFrame], Line] | None = None  # what the colours of some rows mean
    wide_names: bool = False  # names get as much room as without a dress


@dataclass(frozen=True)
class View:
    """A question about runs, and the drawing of its answer."""

    name: str
    title: str
    answer: Callable[[Sequence[Run], Look], Answer]
    draw: Callable[[Answer, Look, Size], list[Line]] | None = None  # None: the rows are a table
    needs: frozenset[str] = frozenset()  # columns, kind:NAME, phase:NAME, table:NAME|any, several:NAME, `a|b`
    runs: int = 1  # 2: a baseline and the run held against it; MANY: all, in the order of the files
    key: str = ""  # the key that opens it, when it is no numbered tab
    columns: tuple[str, ...] = ()  # columns by falling importance, for narrow screens; empty: as they come
    label: str = ""  # the column that a person knows a row by, where that is not the first of the key
    dress: Dress | None = None  # None: numbers and words alone
    partly: bool = False  # it answers what it can where a need is not met
    newest_last: bool = False  # its rows come in the order of time: of a growing run the last is followed
    over_time: bool = False  # its columns are moments: left and right are earlier and later
    group: str = "name"  # what its rows stand for, unless the look says otherwise
    enter: Callable[[Answer, Look], Focus] | None = None  # None: the key columns of the cursor's row
    pointed: Callable[[Answer, Look, Size, int, int], Slice | None] | None = None  # None: nothing in cells
    row_key: tuple[str, ...] | None = None  # None: the key tells its rows apart; empty: only their order does
    merging: Merging | None = None  # None: what it answers of one file cannot be put together for many
    alone: str = ""  # why not, in half a sentence


@dataclass(frozen=True, eq=False, kw_only=True)
class ManyFiles(Run):
    """What stands for many files where a run is meant: it has no events, and answers by asking them."""

    answered: Callable[[View, Look], Answer]
    files: Sequence[Any]  # their addresses, in the order in which answers number them


def views() -> list[View]:
    """Return all views, in the order of the tabs."""
    return [_load(module) for module in VIEWS]


def _load(module: str) -> View:
    return cast(View, import_module(f"tracetui.views.{module}").VIEW)


def view(name: str) -> View:
    """Return the view of a name; raise UsageError where there is none."""
    return _load(module_of(name))


def module_of(name: str) -> str:
    """Return the module of a view, without loading it; raise UsageError where there is none."""
    names = {_RENAMED.get(module, module): module for module in VIEWS}
    if name not in names:
        todo = did_you_mean(name, names, f"choose one of: {', '.join(names)}")
        raise UsageError(f"no view is called {name!r}", todo=todo)
    return names[name]


def missing(view: View, runs: Sequence[Run]) -> tuple[str, ...]:
    """Return what the view needs and a run does not have, in words."""
    asked = runs[: max(1, view.runs)]
    if any(isinstance(run, ManyFiles) for run in asked):
        return () if view.merging is not None and view.runs == 1 else ("one file",)
    return lacking(view.needs, asked)


def lacking(needs: Collection[str], runs: Sequence[Run]) -> tuple[str, ...]:
    """Return which needs a run does not meet, in words."""
    return tuple(sorted({_word(need) for need in needs for run in runs if not _has(run, need)}))


def _has(run: Run, need: str) -> bool:
    if "|" in need:
        return any(_has(run, one) for one in need.split("|"))
    sort, _, what = need.rpartition(":")
    if sort == "several":
        return len(set(select.rank_tracks(run).values())) > 1
    if sort == "table":
        return bool(run.tables) if what == "any" else what in run.tables
    if sort == "phase":
        return what in select.phases(run)
    return select.has_kind(run, what) if sort == "kind" else run.has(what)


def _word(need: str) -> str:
    if "|" in need:
        return " or ".join(map(_word, need.split("|")))
    sort, _, what = need.rpartition(":")
    table = "a table of its own" if what == "any" else f"the table of {what.replace('_', ' ')}"
    words = {"table": table, "kind": f"{what} rows", "several": f"several {what}", "phase": f"a {what} phase"}
    return words.get(sort, what)


@unheard()
def ask(view: View, runs: Sequence[Run], look: Look) -> Answer:
    """Return the answer, or an empty one that says which column is missing. Raise UsageError for a view that
    compares runs where there is one.
    """
    cancel.check()
    if (files := next((run for run in runs if isinstance(run, ManyFiles)), None)) is not None:
        return _of_files(view, files, look)
    if filters.has_terms(look):
        answer = ask(view, runs, filters.on_events(look))
        return replace(answer, rows=filters.narrow(answer.rows, look, view.title.lower()))
    if look.steady:
        parts, asked = [steady.steady_part(run) for run in runs], steady.without_warm_up(look)
        answer = ask(view, parts, asked)
        return replace(answer, notes=(*steady.notes(runs), *answer.notes))
    if len(runs) < min(view.runs, 2):
        todo = f"name a second file: tracetui report {view.name} A B"
        raise UsageError(f"the {view.name} view compares runs, and one run was given", todo=todo)
    lacks = missing(view, runs)
    if not lacks:
        return _marked(view.answer(runs, look), runs)
    part = view.answer(runs, look) if view.partly else Answer(pl.DataFrame(), missing=lacks)
    then = "the {} view needs it" if part.missing else "what else the {} view asks is answered"
    note = f"this source does not tell {' and '.join(lacks)}; {then.format(view.title.lower())}"
    return replace(part, notes=(note, *part.notes))


def _of_files(view: View, files: ManyFiles, look: Look) -> Answer:
    """Return the answer of many files, or why there is none."""
    if view.merging is not None and view.runs == 1:
        return files.answered(view, look)
    why = view.alone or "it compares runs; tracetui diff A B --on WHERE compares groups of files"
    note = f"many files have no {view.title.lower()}: {why}; Enter on a rank opens its file"
    return Answer(pl.DataFrame(), (note,), missing=("one file",))


def _marked(answer: Answer, runs: Sequence[Run]) -> Answer:
    """Return the answer with notes where it shows what its source does not state: which, and where from."""
    shown = {c for frame in (answer.rows, *answer.parts.values()) for c in frame.columns}
    notes = {
        str(run.meta[told]): None
        for told, columns in _TOLD
        for run in runs
        if run.meta.get(told) and not shown.isdisjoint(columns)
    }
    return replace(answer, notes=(*answer.notes, *notes)) if notes else answer


def entered(view: View, answer: Answer, look: Look) -> Focus:
    """Return what Enter at the cursor asks the next view about; empty where the cursor is on no row."""
    if view.enter is not None:
        return view.enter(answer, look)
    row = look.cursor[0]
    if not answer.key or not 0 <= row < answer.rows.height:
        return ()
    return tuple((k, answer.rows[row, k]) for k in answer.key)


def row_key(view: View, answer: Answer) -> tuple[str, ...]:
    """Return the columns whose values tell a row from every other, in every answer about the same run."""
    told = answer.key if view.row_key is None else view.row_key
    return tuple(column for column in told if column in answer.rows.columns)


def ordered(answer: Answer, look: Look) -> Answer:
    """Return the answer sorted and cut as the look asks, with a note where rows are left out."""
    rows, notes = answer.rows, list(answer.notes)
    orders = {column: falls for column, falls in look.orders if column in rows.columns}
    if orders:
        down = list(orders.values())
        rows = rows.sort(list(orders), descending=down, nulls_last=True, maintain_order=True)
    if look.limit is not None and rows.height > look.limit:
        notes.append(f"{look.limit} of {rows.height} rows shown")
        rows = rows.head(look.limit)
    return replace(answer, rows=rows, notes=tuple(notes))
