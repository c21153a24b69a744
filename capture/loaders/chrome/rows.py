"""From trace events to the event schema: kinds, lenses, tracks, steps, and what the header tells."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.classify.names import PRODUCTS, places_its_row, role_of
from capture.classify.python_frames import is_own_line
from capture.importlog import Log
from capture.inference import with_inferred
from capture.loaders.chrome.captured_files import Captures
from capture.loaders.chrome.frames import with_lines
from capture.loaders.chrome.graph_steps import opened_by_graphs
from capture.loaders.chrome.header import DEVICE, devices_of, header_table, meta_of
from capture.loaders.chrome.incomplete import Names, names_in, other_rows, paired
from capture.loaders.chrome.leaves import working_rows
from capture.loaders.chrome.links import with_operators
from capture.loaders.chrome.regions import with_regions
from capture.loaders.chrome.replays import with_captures
from capture.loaders.chrome.resources import COLUMNS as RESOURCES
from capture.loaders.chrome.resources import with_launches, with_resources
from capture.loaders.chrome.scopes import is_scope, with_paths
from capture.loaders.chrome.steps import FACTS, note_capture, opened, said_of, steps_at
from capture.loaders.chrome.tables import PLACE, Complete, Trace, complete_events
from capture.native.schema import TIMES
from capture.run import Run, build
from capture.source import Source

# category, lower case → kind, lens, category of the row; host spans are the rest
Role = tuple[str, str, str | None]
_ROLES: Final[dict[str, Role]] = {
    "kernel": ("kernel", "gpu", None),
    "concurrent_kernel": ("kernel", "gpu", None),
    "mtia_ccp_events": ("kernel", "gpu", None),
    "gpu_memcpy": ("kernel", "gpu", "copy"),
    "gpu_memset": ("kernel", "gpu", "copy"),
    "memcpy": ("kernel", "gpu", "copy"),
    "memset": ("kernel", "gpu", "copy"),
    "gpu_user_annotation": ("span", "gpu", None),
    "cuda_sync": ("span", "wait", "wait"),
    "cuda_runtime": ("span", "host", "host"),
    "cuda_driver": ("span", "host", "host"),
    "runtime": ("span", "host", "host"),
    "mtia_runtime": ("span", "host", "host"),
    "python_function": ("span", "host", "host"),
    "overhead": ("span", "host", "host"),
    "trace": ("span", "host", "other"),
}
_HOST: Final[Role] = ("span", "host", None)
_REGION: Final[Role] = ("span", "gpu", None)
_NAMED_STREAM: Final = re.compile(r"GPU Stream (\d+)")  # how Proton names the threads that are streams
_STEP: Final[Role] = ("step", "wall", None)
_FRAME: Final = "python_function"
_OWN: Final = (
    "t", "dur", "step", "path", "layer", "phase", "shape", "flops", "bytes",
    "launch", "launch_dur", *RESOURCES,
)  # fmt: skip
_LINKS: Final = ("correlation", "external", "args")
_SHARED: Final = ("kind", "name", "lens", "track", "category")


def to_run(trace: Trace, source: Source, *, part: str = "") -> Run:
    """Make a run of a trace as it was read; `part` ends its name where the source holds several runs."""
    log = source.log
    captures = Captures(source.captures, named=source.named_captures is not None)
    names = replace(names_in(trace.others), lanes=trace.lanes)
    pairs = paired(trace.others, log)
    complete = trace.complete + complete_events(pairs, log) if pairs else trace.complete
    names = with_regions(names, complete.labels["place"].unique(), log)
    complete = opened_by_graphs(opened(complete), log)
    complete = Complete(complete.rows, _described(complete.labels, names))
    note_capture(complete, log)
    kernels = _kernels(complete, names, log)
    parts = _attributed(complete, kernels, captures, log)
    rest = other_rows(trace.others, log)
    parts += [rest.cast({pl.String: pl.Categorical()})] * bool(rest.height)
    rows = pl.concat(parts, how="diagonal")
    header = trace.header
    tables = {"trace": header_table(header, log.read), "devices": devices_of(header)}
    meta = meta_of(trace, names, captures.sentence)
    tables = {k: t for k, t in tables.items() if t.width}
    run = build(Path(source.label).name + part, meta, _based(rows, header), log, tables)
    return with_inferred(run, log)


def _described(labels: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Return what a label alone tells of its rows."""
    roles = [_role(cat, place, names) for cat, place in labels.select("cat", "place").iter_rows()]
    roles = [_STEP if opens else role for role, opens in zip(roles, labels["opens"], strict=True)]
    pairs = zip(roles, labels["place"], strict=True)
    return labels.with_columns(
        kind=pl.Series([r[0] for r in roles], dtype=pl.String),
        lens=pl.Series([r[1] for r in roles], dtype=pl.String),
        category=pl.Series([r[2] for r in roles], dtype=pl.String),
        track=pl.Series([_track(r[1], place, names) for r, place in pairs], dtype=pl.String),
        silent=pl.Series([not places_its_row(name) for name in labels["name"]], dtype=pl.Boolean),
        region=pl.Series([names.regions.get(place) for place in labels["place"]], dtype=pl.String),
        vague=pl.Series([role_of(name)[1] == "other" for name in labels["name"]], dtype=pl.Boolean),
        line=pl.Series(_lines(labels), dtype=pl.Boolean),
        product=pl.Series([role_of(name)[1] in PRODUCTS for name in labels["name"]], dtype=pl.Boolean),
        scope=pl.Series(_scopes(labels, roles), dtype=pl.Boolean),
        place=pl.col("place").rank("dense").cast(pl.UInt32),
    )


def _lines(labels: pl.DataFrame) -> list[bool]:
    """Return which labels are functions that a kernel is owed to."""
    return [cat == _FRAME and is_own_line(name) for cat, name in labels.select("cat", "name").iter_rows()]


def _scopes(labels: pl.DataFrame, roles: list[Role]) -> list[bool]:
    """Return which labels are scopes of the host that tell kernels apart; a step's annotation is none."""
    rows = labels.select("cat", "name", "stated").iter_rows()
    return [
        role[:2] == ("span", "host") and not stated and is_scope(cat, name)
        for role, (cat, name, stated) in zip(roles, rows, strict=True)
    ]


def _role(cat: str | None, place: str, names: Names) -> Role:
    """Return kind, lens and category by the event's own, else (JAX) by the names of its process and
    thread.
    """
    if place in names.regions:
        return _REGION
    if cat is not None:
        return _ROLES.get(cat.lower(), _HOST)
    if names.processes.get(place.partition(PLACE)[0], "").startswith(DEVICE):
        on_stream = names.threads.get(place, "").startswith("Stream")
        return ("kernel" if on_stream else "span", "gpu", None)
    return _HOST


def _kernels(complete: Complete, names: Names, log: Log) -> pl.Series:
    """Return which rows are leaf work: the device's, or the host operations that work where there is none."""
    kernel = (complete.labels["kind"] == "kernel").gather(complete.rows["label"])
    if kernel.any() or not kernel.len():
        return kernel
    if not names.regions:
        log.note("leaf_ops", "no device kernels in this trace: its working host operations stand for them")
    return working_rows(complete)


def _attributed(complete: Complete, kernel: pl.Series, captures: Captures, log: Log) -> list[pl.DataFrame]:
    """Return the rows in two frames, made at the same time: kernels with the step and the scopes of their
    launch, the others with the step of their time; in one where nothing links them.
    """
    rows = complete.rows.with_columns(kernel=kernel)
    steps = rows.select("label", "t", "dur", "step").filter(pl.col("step").is_not_null())
    around = rows.select("label", "t", "dur").filter(
        complete.column("scope") & pl.col("t").is_not_null() & (pl.col("dur") > 0) & ~kernel
    )
    here = complete.column("place").alias("place")
    lines = rows.select("label", "t", "dur", here).filter(complete.column("line") & (rows["dur"] > 0))
    linked = any(rows[c].null_count() < rows.height for c in _LINKS)
    if steps.is_empty() and around.is_empty() and lines.is_empty() and not linked:
        return [_spread(rows, complete.labels)]

    def of_host() -> pl.DataFrame:
        others = _with_steps(rows.drop(_LINKS).filter(~kernel), "t", steps)
        return _spread(_with_phases(others, complete.labels, steps), complete.labels)

    with ThreadPoolExecutor(1) as thread:
        others = thread.submit(of_host)
        calls = ~kernel & rows["correlation"].is_not_null()
        host = rows.select("correlation", "t", "dur", "label", here).filter(calls)
        kernels = with_resources(with_launches(rows.with_columns(here).filter(kernel), host))
        if around.height:
            named = (complete.labels[c].gather(around["label"]) for c in ("name", "place"))
            kernels = with_paths(kernels, around.select("t", "dur", *named))
        kernels = _with_steps(with_lines(kernels, lines), "at", steps)
        said = said_of(complete)
        kernels = with_operators(kernels, rows, complete.labels, said)
        kernels = with_captures(kernels, complete, said, captures, log).drop(_LINKS, strict=False)
        kernels = _spread(_with_phases(kernels, complete.labels, steps), complete.labels)
        return [kernels, others.result()]


def _with_phases(rows: pl.DataFrame, labels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the phase of their step, where the annotations of steps tell it."""
    if "phase" not in labels.columns:
        return rows
    phases = labels["phase"].gather(steps.sort("step")["label"]).cast(pl.Categorical())
    return rows.with_columns(phase=phases.gather(rows["step"] - 1))


def _with_steps(rows: pl.DataFrame, at: str, steps: pl.DataFrame) -> pl.DataFrame:
    if steps.is_empty():
        return rows
    return rows.with_columns(step=pl.coalesce("step", steps_at(rows[at], steps)))


def _spread(rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with what their labels share, and no more columns than the schema has."""
    shared = [labels[c].cast(pl.Categorical()).gather(rows["label"]).alias(c) for c in _SHARED]
    kept = [c for c in _OWN if c in rows.columns]
    shared += [
        labels[of].cast(pl.Categorical()).gather(rows[c]).alias(c)
        for c, of in (("launcher", "track"), ("line", "name"))
        if c in rows.columns
    ]
    shared += [labels[c].gather(rows["label"]) for c in FACTS if c in labels.columns]
    shared = _with_captured_line(shared, rows)
    frame = rows.select(*kept, *shared, "kernel", *_spoken(rows, labels))
    frame = _with_stated_paths(frame, rows, labels)
    if "said" in frame.columns:
        frame = frame.with_columns(category=pl.coalesce("category", "said")).drop("said")
    leaf = pl.Series(["kernel"], dtype=pl.Categorical())
    if not (rows["kernel"] & (labels["kind"] != "kernel").gather(rows["label"])).any():
        return frame.drop("kernel")
    return frame.with_columns(kind=pl.when("kernel").then(pl.lit(leaf)).otherwise("kind")).drop("kernel")


def _with_stated_paths(frame: pl.DataFrame, rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the path that the source itself states, else with that around their launch."""
    stated = [rows["stated_path"]] if "stated_path" in rows.columns else []
    if labels["region"].count():
        stated.append(labels["region"].cast(pl.Categorical()).gather(rows["label"]))
    if not stated:
        return frame
    around = [frame["path"]] if "path" in frame.columns else []
    return frame.with_columns(path=pl.coalesce([*stated, *around]))


def _with_captured_line(columns: list[pl.Series], rows: pl.DataFrame) -> list[pl.Series]:
    """Return columns whose `line` is that of the launch into the graph, where a capture tells it."""
    if "captured_line" not in rows.columns:
        return columns
    own = next((c for c in columns if c.name == "line"), None)
    line = pl.select(pl.coalesce(rows["captured_line"], own).alias("line"))["line"]
    return [*(c for c in columns if c.name != "line"), line]


def _spoken(rows: pl.DataFrame, labels: pl.DataFrame) -> list[pl.Series]:
    """Return the op and the category that the scope or the operator around a kernel speaks of.

    Null where the kernel's own name says it: that knows better.
    """
    product = labels["product"].gather(rows["label"])
    if "said" in rows.columns:
        product |= rows["said"].is_in(list(PRODUCTS)).fill_null(value=False)
    spoken = {"op": pl.when(~pl.col("of_products") | product).then("op"), "role": pl.col("role")}
    known = [text for column, text in spoken.items() if column in rows.columns]
    asked = {"op": ("silent", pl.coalesce(known) if known else None)}
    asked["said"] = ("vague", pl.col("said") if "said" in rows.columns else None)
    return [
        rows.select(pl.when(labels[where].gather(rows["label"])).then(text).alias(column))[column]
        for column, (where, text) in asked.items()
        if text is not None
    ]


def _track(lens: str, place: str, names: Names) -> str:
    if place in names.lanes:
        return names.lanes[place]
    return _stream(place, names) if lens in ("gpu", "wait") else _thread(place, names)


def _stream(place: str, names: Names) -> str:
    pid, _, tid = place.partition(PLACE)
    device = names.processes.get(pid, "")
    if device.startswith(DEVICE):
        return f"{device.removeprefix(DEVICE).lower().replace(':', '')}/{names.threads.get(place, tid)}"
    named = _NAMED_STREAM.fullmatch(names.threads.get(place, ""))
    return f"gpu{pid}/stream{named[1] if named else tid.removeprefix('stream').strip()}"


def _thread(place: str, names: Names) -> str:
    pid, _, tid = place.partition(PLACE)
    name = names.threads.get(place, "")
    if name and tid in name:
        return name
    return f"{pid}/{name or 'thread'} {tid}" if name else f"{pid}/{tid}"


def _based(rows: pl.DataFrame, header: dict[str, Any]) -> pl.DataFrame:
    """Return starts on the clock of the epoch where the trace states its base."""
    base = header.get("baseTimeNanoseconds")
    latest = rows["t"].max()
    if type(base) is not int or not isinstance(latest, int) or not 0 < base < (1 << 63) - 1 - max(latest, 0):
        return rows
    return rows.with_columns(pl.col(c) + base for c in TIMES if c in rows.columns)
