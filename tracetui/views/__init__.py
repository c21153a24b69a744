"""Views: each asks runs one question and may draw the answer.

A view is one module with a constant `VIEW`, an object of class `View`. Its `answer(runs, look)` returns an
`Answer`: rows with notes. If it has a `draw(answer, look, size)`, that returns lines of styled text (see
`ink`); otherwise the rows are a table. Everything else follows from the object: the tab, `tracetui report
NAME` in every format, the SQL table, the palette, help and completion. An answer says what the source cannot
tell; it never shows zero for unknown. Runs and frames are never changed. A comparing view gets `Sides` if
there are repeats.

A package of your own adds a view with an entry point; its name is that of the view:

    [project.entry-points."tracetui.views"]
    heat = "my_package.heat:VIEW"

Such views come after those of tracetui. One that cannot be loaded is left out; `tracetui report list` and
`tracetui doctor` name it with its package and the reason.

- summary: what ran, how fast, where the time went, and what this source cannot show
- kernels: time by kernel, op, layer or any other grouping
- growth: how each op's time per token changes over the decode steps, and which steps are outliers
- layers: a heat map of layer by op, or by step, with odd layers marked
- steps: one row per decode step or iteration, and the share of its wall time spent in kernels
- tree: scopes with their inclusive and exclusive time
- timeline: a flame chart of devices with steps and layers, and of threads with their scopes
- shapes: time by operand shape, and the rates reached
- fix: recoverable time of a step, ranked, each item with evidence, advice and what would refute it
- memory: sizes by name, and how they changed
- requests: requests to a server, and why their tokens came late
- counters: values sampled during the run
- ranks: work and waiting of each rank per step, skew between ranks, and stragglers with evidence
- collectives: each collective split over ranks into arrival (who was late, by what) and transfer
- rankmap: a heat map of rank by step, each cell relative to the median of all ranks in its step
- training: phases of a step, their kernels, matrix products and the rest, softmax against attention
- now: the last seconds of a run compared with the whole run, and the last minute as strips
- roofline: rate of each op against its arithmetic intensity, below the roofs of the device
- log: lines of the source that are not timings
- tables: tables of the source itself, unchanged
- sections: metallic's own report, from its recording or as printed
- imported: records read, kept, repaired and dropped
- detail: distribution, trend over steps, layers, launches
- launches: one row per launch; of two, in what they differ
- why: in what a step differs from the median of its like, or from another step
- calls: callers and callees of one scope of the tree
- diff: two runs side by side: what changed, and whether the evidence supports it
- waterfall: where the difference of two runs comes from, exactly, bar by bar
- curves: how the time of an op grows in two runs, on one chart
- shifts: a heat map of changes between two runs, layer by op or by step
- cycles: how each function and metric changed between two runs, with tests and suspicion
- findings: a comparison in sentences
- compare: N runs side by side, one row per kernel, op or row of another view, and its scaling law
- pair: one row of a diff: distributions, trends over the steps, counters and launches on both sides
- sides: two groups of files, one row per kernel, with evidence for changes; the file is the sample

Shared by views:
- ink: lines of styled spans, tables, labelled bars
- charts: curves and roofline charts as characters
- _category: colours of kernel categories, and their legends
- _flame_chart: the rows of a flame chart
- _grid: heat maps of cells around the cursor
- _merging: answers about many files, from sums or samples
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal, TypeGuard, cast

import polars as pl
from msgspec import Struct, structs

from capture.errors import CaptureError, UsageError, suggest_nearest
from capture.plugins import Plugin, describe_error, list_entry_point_names, load_entry_points
from capture.run import Run
from capture.stderr_mute import mute_stderr
from capture.tasks import check_cancelled
from tracetui import filter_syntax
from tracetui.analysis.contradictions import clear_contradictions
from tracetui.analysis.frames import display_names, selection
from tracetui.analysis.merged.partial_results import FrameShape, PartialResult
from tracetui.analysis.time import steady
from tracetui.compare.run_sides import map_runs
from tracetui.look import Look
from tracetui.views.ink import DrawSize, Line

# A view is one module here and one line in this tuple, in the order of the tabs. The first nine have a tab on
# every file, the others where the file feeds them, or in the palette alone (`View.tab`).
VIEWS: Final = (
    "summary",
    "kernels",
    "growth",
    "layers",
    "steps",
    "tree",
    "timeline",
    "shapes",
    "fix",
    "memory",
    "requests",
    "counters",
    "ranks",
    "collectives",
    "rankmap",
    "training",
    "now",
    "roofline",
    "log",
    "tables",
    "sections",
    "imported",
    "detail",
    "launches",
    "why",
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

MANY: Final = 1 << 20  # run_count of a view that takes any number of runs
VIEW_GROUP: Final = "tracetui.views"  # of entry points

_NAME_BY_MODULE: Final = {"imported": "import"}  # `import` cannot name a module
# Keys of a run's meta with a note that these columns were inferred, not reported by the source.
_PROVENANCE_COLUMNS: Final = (
    ("inferred", frozenset({"layer", "op"})),
    ("inferred_steps", frozenset({"step"})),
    ("captured", frozenset({"layer", "op", "shape", "roof_share"})),
)

Focus = tuple[tuple[str, Any], ...]
SPAN: Final = "span"  # in a focus: first and last ns, which the timeline shows
Slice = tuple[int, int, int]  # of a timeline: lane, start and end in ns
CellStyles = Callable[[pl.DataFrame], Mapping[str, Sequence[str]]]  # rows → by column, a style per row


@dataclass(frozen=True, eq=False)
class Answer:
    """Rows, with the notes that are needed to read them."""

    rows: pl.DataFrame
    notes: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # columns that identify a row; Enter drills down by them
    parts: Mapping[str, pl.DataFrame] = field(default_factory=dict)  # further frames for the drawing
    columns: tuple[str, ...] = ()  # by falling importance; empty: those of the view
    table_style: "TableStyle | None" = None  # None: that of the view
    order: tuple[tuple[str, bool], ...] = ()  # of the rows: columns, and whether each falls; empty: measured
    leading_notes: int = 0  # how many notes are the answer itself; reports print them above the rows
    doubts: tuple[str, ...] = ()  # reasons not to trust the rows; a screen shows them first
    missing: tuple[str, ...] = ()  # needs that the source does not meet, if it cannot feed the view
    names: Mapping[str, str] = field(default_factory=dict)  # display names, filled in by `ask`


class Merging(Struct, frozen=True, eq=False):
    """How one answer about many files is computed: a part per file, merged, then finished."""

    compute_partial: Callable[[Run, Look], Mapping[str, pl.DataFrame]]  # `members`: one row of facts
    shapes: Mapping[str, FrameShape]  # keys and merge rules of these frames
    finish_answer: Callable[[PartialResult, Look], Answer]  # for two or more runs
    needs: frozenset[str] | None = None  # of each run that contributes; None: those of the view
    by_track: bool = False  # keep tracks apart, as those of each file's rank


class TableStyle(Struct, frozen=True):
    """What a table shows besides its numbers: colours, and the same as signs and words."""

    cell_styles: CellStyles
    bar: str = ""  # column that is also drawn as a signed bar
    sides: tuple[tuple[str, ...], ...] = ()  # columns side by side if there is room: a | change | b
    legend: Callable[[pl.DataFrame], Line] | None = None  # of the colours of some rows
    wide_names: bool = False  # give names as much room as without a style


class View(Struct, frozen=True):
    """A question about runs, and the drawing of its answer."""

    name: str
    title: str
    answer: Callable[[Sequence[Run], Look], Answer]
    draw: Callable[[Answer, Look, DrawSize], list[Line]] | None = None  # None: the rows are a table
    needs: frozenset[str] = frozenset()  # columns, kind:NAME, phase:NAME, table:NAME|any, several:NAME, `a|b`
    tab: Literal["fed", "live", "palette"] = "fed"  # live: offered for a growing run only
    run_count: int = 1  # 2: a baseline and a run to compare; MANY: all, in the order of the files
    shortcut: str = ""  # key that opens it, besides its number among the tabs
    columns: tuple[str, ...] = ()  # by falling importance, for narrow screens; empty: as they come
    label_column: str = ""  # that names a row to the user; empty: the first of the key
    table_style: TableStyle | None = None  # None: numbers and words only
    answers_partly: bool = False  # it answers what it can if a need is not met
    newest_last: bool = False  # rows are in time order: the last one of a growing run is followed
    has_time_axis: bool = False  # columns of the drawing are times: left and right are earlier and later
    default_group: str = "name"  # grouping of the rows, unless the look has one
    describe_row: Callable[[Mapping[str, Any]], list[tuple[str, str]]] | None = None  # below the table
    find_focus: Callable[[Answer, Look], Focus] | None = None  # None: the key of the cursor's row
    find_cell: Callable[[Answer, Mapping[str, Any]], tuple[int, int] | None] | None = None  # of values
    numbers: str = ""  # column of its rows' numbers: a filter that is a number selects one of them
    own_focus: str = ""  # column of its key that it shows the inside of by itself
    find_slice_in_cell: Callable[[Answer, Look, DrawSize, int, int], Slice | None] | None = None
    row_key: tuple[str, ...] | None = None  # None: the answer's key; empty: rows have only their order
    merging: Merging | None = None  # None: there is no answer about many files
    not_merged_because: str = ""  # the reason, in half a sentence
    filters: Literal["events", "names", "rows"] = "events"  # what a filter can name; rows: figures only
    package: str = ""  # of another package: its name and version, filled in when it is loaded


@dataclass(frozen=True, eq=False)
class ManyFiles:
    """Many files, which are asked for each answer."""

    head: Run  # their name and log, without events: for titles and lists
    files: Sequence[Any]  # their addresses, in the order of their numbers in answers
    answer: Callable[[View, Look], Answer]


Source = Run | ManyFiles  # of answers


def find_files(sources: Sequence[Source]) -> ManyFiles | None:
    """Return the first source that is many files; None if all are runs."""
    return next((source for source in sources if isinstance(source, ManyFiles)), None)


def are_runs(sources: Sequence[Source]) -> TypeGuard[Sequence[Run]]:
    """Return whether all sources are runs."""
    return find_files(sources) is None


def list_heads(sources: Sequence[Source]) -> Sequence[Run]:
    """Return the runs themselves, and the head of many files."""
    if are_runs(sources):
        return sources
    return [source.head if isinstance(source, ManyFiles) else source for source in sources]


def load_views() -> list[View]:
    """Return all views in the order of the tabs; those of other packages come last."""
    plugins = (plugin.value for plugin in _load_plugins() if not plugin.problem)
    return [*map(_load_view_module, VIEWS), *plugins]


def load_view(name: str) -> View:
    """Return the view of a name; raise UsageError if there is none, or it cannot be loaded."""
    check_view_name(name)
    modules = {_NAME_BY_MODULE.get(module, module): module for module in VIEWS}
    if name in modules:
        return _load_view_module(modules[name])
    plugin = next(plugin for plugin in _load_plugins() if plugin.name == name)
    if plugin.problem:
        raise UsageError(f"the view {name!r} of {plugin.package} cannot be loaded", why=plugin.problem)
    return cast(View, plugin.value)


def _load_view_module(module: str) -> View:
    return cast(View, import_module(f"tracetui.views.{module}").VIEW)


def check_view_name(name: str) -> None:
    """Raise UsageError if no view has this name; load none."""
    if name in VIEWS and name not in _NAME_BY_MODULE:  # the usual case does not read entry points
        return
    names = list_view_names()
    if name not in names:
        todo = suggest_nearest(name, names, f"choose one of: {', '.join(names)}")
        raise UsageError(f"no view is called {name!r}", todo=todo)


def list_view_names() -> list[str]:
    """Return the names of all views, loading none of them."""
    bundled = [_NAME_BY_MODULE.get(module, module) for module in VIEWS]
    return [*bundled, *(name for name in list_entry_point_names(VIEW_GROUP) if name not in bundled)]


def list_unusable_views() -> list[str]:
    """Return a line per view of another package that is left out: its name, the package, the reason."""
    return [f"view {p.name!r} of {p.package} is left out: {p.problem}" for p in _load_plugins() if p.problem]


@cache
def _load_plugins() -> tuple[Plugin, ...]:
    """Return the views of other packages; `problem` says why one is left out."""
    names = {_NAME_BY_MODULE.get(module, module) for module in VIEWS}
    plugins = []
    for plugin in load_entry_points(VIEW_GROUP):
        plugins.append(_check_plugin(plugin, names))
        names.add(plugin.name)
    return tuple(plugins)


def _check_plugin(plugin: Plugin, names: Collection[str]) -> Plugin:
    """Return the plugin with its package in the view, or with the problem that makes it unusable."""
    if plugin.problem:
        return plugin
    if not isinstance(plugin.value, View):
        return plugin._replace(problem="it is not a tracetui.views.View")
    if plugin.value.name != plugin.name:
        return plugin._replace(problem=f"its view is called {plugin.value.name!r}")
    if plugin.name in names:
        return plugin._replace(problem="there is already a view of this name")
    return plugin._replace(value=structs.replace(plugin.value, package=plugin.package))


def find_missing_needs(view: View, sources: Sequence[Source]) -> tuple[str, ...]:
    """Return the needs of the view that a source does not meet, as text."""
    view_runs = sources[: max(1, view.run_count)]
    if not are_runs(view_runs):
        return () if view.merging is not None and view.run_count == 1 else ("one file",)
    return describe_missing_needs(view.needs, view_runs)


def describe_missing_needs(needs: Collection[str], runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the needs that a run does not meet, as text."""
    return tuple(sorted({_describe_need(need) for need in needs for run in runs if not _has_need(run, need)}))


def _has_need(run: Run, need: str) -> bool:
    if "|" in need:
        return any(_has_need(run, alternative) for alternative in need.split("|"))
    kind, _, what = need.rpartition(":")
    if kind == "several":
        return len(set(selection.find_rank_tracks(run).values())) > 1
    if kind == "table":
        return bool(run.tables) if what == "any" else what in run.tables
    if kind == "phase":
        return what in selection.list_phases(run)
    return selection.has_kind(run, what) if kind == "kind" else run.has(what)


def _describe_need(need: str) -> str:
    if "|" in need:
        return " or ".join(map(_describe_need, need.split("|")))
    kind, _, what = need.rpartition(":")
    table = "a table of its own" if what == "any" else f"the table of {what.replace('_', ' ')}"
    words = {"table": table, "kind": f"{what} rows", "several": f"several {what}", "phase": f"a {what} phase"}
    return words.get(kind, what)


@mute_stderr()
def ask(view: View, runs: Sequence[Source], look: Look) -> Answer:
    """Ask a view; if the source cannot feed it, the answer is empty and a note says what is missing.

    Terms of the filter, the steady state and many files are handled here, so that no view has to. Raise
    UsageError if a comparing view gets a single run.
    """
    check_cancelled()
    if not are_runs(runs):
        answer = _clear_contradictions(_answer_many_files(view, runs, look))
        return replace(answer, names=display_names.map_names_in(answer.rows, ()))
    check_filter(view, look.filter)
    if view.numbers and look.filter.isdecimal() and all(run.has(view.numbers) for run in runs):
        look = replace(look, filter=f"{view.numbers}:{look.filter}")
    answer = _ask_runs(view, runs, look)
    return replace(answer, names=display_names.map_names_in(answer.rows, runs))


def check_filter(view: View, text: str) -> None:
    """Raise UsageError for a filter that is invalid, or would do nothing in this view."""
    names, events, _ = filter_syntax.parse_filter(text)
    if view.filters == "rows" and (names or events):
        raise UsageError(f"the {view.name} view has no kernels to filter", todo="filter a column: count:>5")
    if view.filters == "names" and events:
        what = f"the {view.name} view is filtered by names only"
        raise UsageError(what, todo="write a part of a name, or a column of the view: share:>5")


def _ask_runs(view: View, runs: Sequence[Run], look: Look) -> Answer:
    if look.filter and filter_syntax.has_terms(look):
        answer = _ask_runs(view, runs, filter_syntax.with_event_terms(look))
        return replace(answer, rows=filter_syntax.filter_answer_rows(answer.rows, look, view.title.lower()))
    if look.steady:
        answer = _ask_runs(view, map_runs(steady.cut_to_steady, runs), replace(look, steady=False))
        return replace(answer, notes=(*steady.note_steady_states(runs), *answer.notes))
    if len(runs) < min(view.run_count, 2):
        todo = f"name a second file: tracetui report {view.name} A B"
        raise UsageError(f"the {view.name} view compares runs, and one run was given", todo=todo)
    lacks = find_missing_needs(view, runs)
    if not lacks:
        return _clear_contradictions(_add_provenance_notes(_call_answer(view, runs, look), runs))
    answer = _call_answer(view, runs, look) if view.answers_partly else Answer(pl.DataFrame(), missing=lacks)
    title = view.title.lower()
    then = f"the {title} view needs it" if answer.missing else f"the rest of the {title} view is complete"
    note = f"this source does not report {' and '.join(lacks)}; {then}"
    return replace(answer, notes=(note, *answer.notes))


def _call_answer(view: View, runs: Sequence[Run], look: Look) -> Answer:
    """Call the view's `answer`; an error in a view of another package names that package."""
    try:
        return view.answer(runs, look)
    except Exception as error:
        if not view.package or isinstance(error, CaptureError):
            raise
        raise CaptureError(
            f"the view {view.name!r} of {view.package} failed", why=describe_error(error)
        ) from error


def _clear_contradictions(answer: Answer) -> Answer:
    """Return the answer without impossible figures; notes on them follow those that lead the answer."""
    rows, notes = clear_contradictions(answer.rows)
    cleared = {name: clear_contradictions(frame) for name, frame in answer.parts.items()}
    parts = {name: frame for name, (frame, _) in cleared.items()}
    notes += [note for _, of_part in cleared.values() for note in of_part]
    if not notes:
        return answer
    lead = max(1, answer.leading_notes)
    before, after = answer.notes[:lead], answer.notes[lead:]
    return replace(answer, rows=rows, parts=parts, notes=(*before, *dict.fromkeys(notes), *after))


def _answer_many_files(view: View, sources: Sequence[Source], look: Look) -> Answer:
    """Return the answer about many files, or an empty one with the reason."""
    files = find_files(sources)
    if files is not None and view.merging is not None and view.run_count == 1:
        return files.answer(view, look)
    why = view.not_merged_because or "it compares runs; tracetui diff A B --on WHERE compares groups of files"
    note = f"many files have no {view.title.lower()}: {why}; Enter on a rank opens its file"
    return Answer(pl.DataFrame(), (note,), missing=("one file",))


def _add_provenance_notes(answer: Answer, runs: Sequence[Run]) -> Answer:
    """Add a note for displayed columns that were inferred, not reported by the source."""
    displayed = {c for frame in (answer.rows, *answer.parts.values()) for c in frame.columns}
    notes = {
        str(run.meta[key]): None
        for key, columns in _PROVENANCE_COLUMNS
        for run in runs
        if run.meta.get(key) and not displayed.isdisjoint(columns)
    }
    return replace(answer, notes=(*answer.notes, *notes)) if notes else answer


def find_focus(view: View, answer: Answer, look: Look) -> Focus:
    """Return the row under the cursor, as the focus of the next view; empty if the cursor is on no row."""
    if view.find_focus is not None:
        return view.find_focus(answer, look)
    row = find_cursor_row(answer, look)
    return () if row is None else tuple((column, row[column]) for column in answer.key)


def find_cursor_row(answer: Answer, look: Look) -> dict[str, Any] | None:
    """Return the row under the cursor; None if the cursor is on no row."""
    at = look.cursor[0]
    return answer.rows.row(at, named=True) if 0 <= at < answer.rows.height else None


def choose_group(runs: Sequence[Run], group: str | None) -> str:
    """Return the requested grouping; by default ops, or names if a run has no ops."""
    return group or ("op" if all(run.has("op") for run in runs) else "name")


def select_row_key(view: View, answer: Answer) -> tuple[str, ...]:
    """Return the columns that identify a row in every answer about the same run."""
    key = answer.key if view.row_key is None else view.row_key
    return tuple(column for column in key if column in answer.rows.columns)


def sort_answer(answer: Answer, look: Look) -> Answer:
    """Sort and limit the answer as the look says; a note tells how many rows there were."""
    rows, notes = answer.rows, list(answer.notes)
    orders = {column: descending for column, descending in look.sort_orders if column in rows.columns}
    if orders:
        directions = list(orders.values())
        rows = rows.sort(list(orders), descending=directions, nulls_last=True, maintain_order=True)
        if {"share", "cumulative_share"} <= set(rows.columns):  # with those of all rows above it
            running = None if look.filter else pl.col("share").cum_sum()  # hidden rows may be above it
            rows = rows.with_columns(cumulative_share=running)
    if look.limit is not None and rows.height > look.limit:
        notes.append(f"{look.limit} of {rows.height} rows shown")
        rows = rows.head(look.limit)
    return replace(answer, rows=rows, notes=tuple(notes))
