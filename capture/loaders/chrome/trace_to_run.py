"""Convert a `Trace` to a Run: kinds, lenses, tracks, steps, and attribution of kernels to their launch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from capture.classify.name_rules import PRODUCT_CATEGORIES, has_model_position, infer_op_and_category
from capture.dense_lookup import drop_columns, fill_nulls, filter_rows, has_value, keep_where, put_columns
from capture.graphs.replay_attribution import CaptureSet, attribute_replays
from capture.import_log import Log
from capture.infer_structure import add_inferred_structure
from capture.loaders.chrome.compiled_origins import with_origins
from capture.loaders.chrome.host_leaves import find_host_work
from capture.loaders.chrome.launch_context import (
    LAUNCH_CONFIG_COLUMNS,
    MESSAGE_COLUMNS,
    find_function_owner,
    is_scope,
    with_forward_passes,
    with_launch_config,
    with_launches,
    with_lines,
    with_operators,
    with_paths,
)
from capture.loaders.chrome.trace_metadata import (
    JAX_DEVICE_PREFIX,
    ProcessNames,
    build_device_table,
    build_header_table,
    build_meta,
    read_process_names,
    shift_to_epoch,
    with_regions,
)
from capture.loaders.chrome.trace_model import (
    THREAD_SEPARATOR,
    CompleteEvents,
    Trace,
    build_complete_events,
    build_other_rows,
    join_begin_end,
)
from capture.loaders.chrome.trace_steps import (
    DISPATCH_PATTERN,
    STEP_FIELDS,
    add_implied_steps,
    drop_dispatch_steps,
    extend_steps,
    find_steps_at,
    mark_step_starts,
    note_capture_trace,
    note_overlapping_steps,
    read_step_annotations,
    select_steps,
)
from capture.run import Run, build_run
from capture.source import Source
from capture.tasks import run_parallel


class CompanionFiles(NamedTuple):
    """Files next to a trace that say more of its kernels."""

    captures: CaptureSet
    of_compiler: Sequence[Path]


class _RowType(NamedTuple):
    kind: str
    lens: str
    category: str | None


_KERNEL: Final = _RowType("kernel", "gpu", None)
_COPY: Final = _RowType("kernel", "gpu", "copy")
_RUNTIME: Final = _RowType("span", "host", "host")
_HOST: Final = _RowType("span", "host", None)
_DEVICE_SPAN: Final = _RowType("span", "gpu", None)
_STEP: Final = _RowType("step", "wall", None)
_WINDOW: Final = _RowType("mark", "host", None)  # the time that the profiler recorded
_ROW_TYPES: Final = {  # by category of the event in lower case; other categories are host spans
    "kernel": _KERNEL, "concurrent_kernel": _KERNEL, "mtia_ccp_events": _KERNEL,
    "gpu_memcpy": _COPY, "gpu_memset": _COPY, "memcpy": _COPY, "memset": _COPY,
    "gpu_user_annotation": _DEVICE_SPAN, "cuda_sync": _RowType("span", "wait", "wait"),
    "cuda_runtime": _RUNTIME, "cuda_driver": _RUNTIME, "runtime": _RUNTIME, "mtia_runtime": _RUNTIME,
    "python_function": _RUNTIME, "overhead": _RUNTIME, "trace": _WINDOW,
}  # fmt: skip
_FUNCTION_CATEGORY: Final = "python_function"
_STAND_INS: Final = {  # for kernels, by what a trace without a device has
    "operators": "its working host operations stand for them",
    "thunks": "XLA's operations on the processor stand for them",
    "spans": "the self times of its spans stand for them",
}
_ROW_COLUMNS: Final = (
    "t", "dur", "step", "path", "layer", "phase", "shape", "dtype", "flops", "bytes",
    "launch", "launch_dur", *LAUNCH_CONFIG_COLUMNS, *MESSAGE_COLUMNS, "reported_path", "captured_line",
    "origin_line",
)  # fmt: skip
_SOURCES: Final = {  # columns of which the first with a value counts
    "path": ("reported_path", "region", "path"),
    "shape": ("message_shape", "shape"),
    "dtype": ("message_dtype", "dtype"),
    "line": ("captured_line", "origin_line", "line"),
    "category": ("category", "operator_category"),
}
_LINK_COLUMNS: Final = ("correlation", "external_id", "args")
_LABEL_COLUMNS: Final = ("kind", "name", "lens", "track", "category")


def convert_to_run(trace: Trace, source: Source, *, part: str = "") -> Run:
    """Convert a trace to a run; `part` is appended to its name if the source has several runs.

    The other events of the trace are gone afterwards: they hold a quarter of the memory.
    """
    log = source.log
    captures = CaptureSet(source.captures, are_requested=source.requested_captures is not None)
    names = replace(read_process_names(trace.others), tracks=trace.tracks)
    steps = [event for event in trace.others if event.ph == "X"]  # before pairs become complete, too
    pairs = join_begin_end(trace.others, log) + steps
    complete = trace.complete + build_complete_events(pairs, log) if pairs else trace.complete
    del steps, pairs
    names = with_regions(names, dict.fromkeys(complete.labels["thread"]), log)
    complete = add_implied_steps(mark_step_starts(complete), log)
    note_overlapping_steps(complete, log)
    complete = extend_steps(complete)
    complete = CompleteEvents(complete.rows, _describe_labels(complete.labels, names))
    note_capture_trace(complete, log)
    complete, is_leaf, basis = _find_leaf_work(complete, names, log)
    if basis == "thunks":
        complete = drop_dispatch_steps(complete, is_leaf, log)
    files = CompanionFiles(captures, source.compiler_files)
    parts = _attribute_to_launches(complete, is_leaf, files, log, has_thunks=basis == "thunks")
    others = build_other_rows(trace.others, log)
    trace.others.clear()
    parts += [others.cast({pl.String: pl.Categorical()})] if others.height else []
    rows = pl.concat(parts, how="diagonal")
    tables = {"trace": build_header_table(trace.header, log.read)}
    if (devices := build_device_table(trace.header)).width:
        tables["devices"] = devices
    meta = build_meta(trace, names, devices, captures.summary)
    if basis is not None:
        meta["work"] = basis
    run = build_run(Path(source.label).name + part, meta, shift_to_epoch(rows, trace.header), log, tables)
    if basis == "spans" and not _has_model(run):
        run = replace(run, events=_drop_model_words(run.events))
    return add_inferred_structure(run, log)


def _has_model(run: Run) -> bool:
    """Whether functions are named after a model: several layers, or attention."""
    layers = run.events["layer"].n_unique() > 2 if run.has("layer") else False  # null is one
    return layers or (run.has("op") and bool((run.events["op"].cast(pl.String) == "attn.core").any()))


def _drop_model_words(events: pl.DataFrame) -> pl.DataFrame:
    """Drop what names imply about a model of a program without one: a browser's `Activation` is no op."""
    other = pl.lit("other").cast(pl.Categorical())
    is_of_model = ~pl.col("category").cast(pl.String).is_in(["wait", "host", "comm"])
    if "category" in events.columns:
        events = events.with_columns(category=pl.when(is_of_model).then(other).otherwise("category"))
    return events.drop("op", "phase", "layer", strict=False)


def _describe_labels(labels: pl.DataFrame, names: ProcessNames) -> pl.DataFrame:
    """Add the columns that depend on the label alone: row type, track, and what its name leaves open."""
    columns = (labels[c].to_list() for c in ("cat", "name", "thread", "starts_step", "is_annotation"))
    rows = list(zip(*columns, strict=True))
    types = [_STEP if starts else _find_row_type(cat, thread, names) for cat, _, thread, starts, _ in rows]
    tracks = [names.find_track(row_type.lens, row[2]) for row_type, row in zip(types, rows, strict=True)]
    scopes = [  # host scopes by which kernels are grouped, without the annotations of steps
        (row_type.kind, row_type.lens) == ("span", "host") and not is_annotation and is_scope(cat, name)
        for row_type, (cat, name, *_, is_annotation) in zip(types, rows, strict=True)
    ]
    texts = {c: [getattr(row_type, c) for row_type in types] for c in _RowType._fields}
    texts["track"] = tracks
    return put_columns(
        labels,
        *(pl.Series(column, values, dtype=pl.String) for column, values in texts.items()),
        *_describe_names(labels),
        *_describe_threads(labels["thread"].to_list(), names),
        pl.Series("is_scope", scopes, dtype=pl.Boolean),
    )


def _describe_threads(threads: list[str], names: ProcessNames) -> Iterator[pl.Series]:
    codes = {thread: code for code, thread in enumerate(sorted(set(threads)), 1)}
    devices = [thread.partition(THREAD_SEPARATOR)[0] for thread in threads]
    yield pl.Series("region", [names.regions.get(thread) for thread in threads], dtype=pl.String)
    yield pl.Series("device", devices, dtype=pl.String)
    yield pl.Series("thread", [codes[thread] for thread in threads], dtype=pl.UInt32)


def _describe_names(labels: pl.DataFrame) -> Iterator[pl.Series]:
    categories = [infer_op_and_category(name)[1] for name in labels["name"]]
    pairs = zip(labels["cat"], labels["name"], strict=True)
    flags = {
        "has_open_op": [not has_model_position(name) for name in labels["name"]],
        "has_open_category": [category == "other" for category in categories],
        "is_product": [category in PRODUCT_CATEGORIES for category in categories],
    }
    owners = [cat == _FUNCTION_CATEGORY and find_function_owner(name) for cat, name in pairs]
    yield pl.Series("owner", owners, dtype=pl.Int8)
    yield from (pl.Series(column, values, dtype=pl.Boolean) for column, values in flags.items())


def _find_row_type(cat: str | None, thread: str, names: ProcessNames) -> _RowType:
    """Find the type of a row by its category, else (JAX) by the names of its process and thread."""
    if thread in names.regions:
        return _DEVICE_SPAN
    if cat is not None:
        return _ROW_TYPES.get(cat.lower(), _HOST)
    if names.processes.get(thread.partition(THREAD_SEPARATOR)[0], "").startswith(JAX_DEVICE_PREFIX):
        return _KERNEL if names.threads.get(thread, "").startswith("Stream") else _DEVICE_SPAN
    return _HOST


def _find_leaf_work(
    complete: CompleteEvents, names: ProcessNames, log: Log
) -> tuple[CompleteEvents, pl.Series, str | None]:
    """Find the rows that are leaf work: kernels, or what stands for them if there is no device.

    Returns the events, with rows of self times if those count; whether each is leaf work; and the basis.
    """
    is_kernel = (complete.labels["kind"] == "kernel")[complete.rows["label"]]
    if is_kernel.any() or not is_kernel.len():
        return complete, is_kernel, None
    work = find_host_work(complete)
    if not names.regions and work.is_work.any():
        log.note("leaf_ops", f"no device kernels in this trace: {_STAND_INS[work.basis]}")
    return work


def _attribute_to_launches(
    complete: CompleteEvents, is_leaf: pl.Series, files: CompanionFiles, log: Log, *, has_thunks: bool
) -> list[pl.DataFrame]:
    """Attribute kernels to step and scopes of their launch, and other rows to the step of their time.

    Returns two frames; one if nothing links kernels to launches.
    """
    rows = complete.rows.hstack([is_leaf.alias("is_leaf")])
    times, lasts, steps = rows[["label", "t", "dur"]], rows["dur"] > 0, select_steps(rows)
    thread, owner = map(complete.expand_label, ("thread", "owner"))
    spans = put_columns(rows, thread)
    scopes = filter_rows(times, _mark_scopes(complete, is_leaf, has_thunks=has_thunks) & lasts)
    functions = filter_rows(times.hstack([thread, owner]), (owner > 0) & lasts)
    has_links = any(rows[c].null_count() < rows.height for c in _LINK_COLUMNS)
    if steps.is_empty() and scopes.is_empty() and functions.is_empty() and not has_links:
        return [_expand_labels(rows, complete.labels)]

    def build_others() -> pl.DataFrame:
        others = _with_steps(filter_rows(drop_columns(rows, *_LINK_COLUMNS), ~is_leaf), "t", steps)
        return _expand_labels(_with_phases(others, complete.labels, steps), complete.labels)

    def build_kernels() -> pl.DataFrame:
        kernels = with_launch_config(_with_calls(spans))
        if scopes.height:
            named_scopes = scopes[["t", "dur"]].hstack(complete.labels[["name", "thread"]][scopes["label"]])
            if has_thunks:
                kernels = _move_thunks(kernels, named_scopes["thread"])
            kernels = with_paths(kernels, with_forward_passes(named_scopes), log)
        kernels = _with_steps(with_lines(kernels, functions), "host_t", steps)
        kernels = _move_carried_over(kernels, complete.labels["device"])
        annotations = read_step_annotations(complete)
        kernels = with_operators(kernels, rows, complete.labels, annotations)
        if files.captures.paths:
            kernels = attribute_replays(kernels, complete, annotations, files.captures, log)
        if files.of_compiler:
            kernels = with_origins(kernels, spans, complete.labels, files.of_compiler, log)
        kernels = _with_phases(drop_columns(kernels, *_LINK_COLUMNS), complete.labels, steps)
        return _expand_labels(kernels, complete.labels)

    return [*run_parallel((build_kernels, build_others), rows.height)]


def _mark_scopes(complete: CompleteEvents, is_leaf: pl.Series, *, has_thunks: bool) -> pl.Series:
    """Mark the rows of scopes; none that dispatches thunks: whether it lasts until they begin is chance."""
    is_scope = complete.labels["is_scope"]
    if has_thunks:
        is_scope &= ~complete.labels["name"].str.contains(DISPATCH_PATTERN)
    return is_scope[complete.rows["label"]] & ~is_leaf & has_value(complete.rows["t"])


def _with_calls(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the leaf work, with the calls that launched it."""
    is_call = ~rows["is_leaf"] & has_value(rows["correlation"])
    calls = filter_rows(rows[["correlation", "t", "dur", "label", "thread"]], is_call)
    return with_launches(filter_rows(rows, rows["is_leaf"]), calls)


def _move_thunks(kernels: pl.DataFrame, scope_threads: pl.Series) -> pl.DataFrame:
    """Let XLA's thunks, which run in threads of its own, be in the scopes of the one thread that has some."""
    if scope_threads.n_unique() > 1:
        return kernels
    return kernels.with_columns(host_thread=pl.lit(scope_threads[0], scope_threads.dtype))


def _with_phases(rows: pl.DataFrame, labels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add the phase of each row's step, if annotations report it."""
    if "phase" not in labels.columns:
        return rows
    phases = labels["phase"][steps.sort("step")["label"]].cast(pl.Categorical())
    return rows.with_columns(phase=phases.gather(rows["step"] - 1))


def _with_steps(rows: pl.DataFrame, time: str, steps: pl.DataFrame) -> pl.DataFrame:
    """Add the step that runs at a time column, unless a row starts a step itself."""
    if steps.is_empty():
        return rows
    return put_columns(rows, fill_nulls(rows["step"], find_steps_at(rows[time], steps)))


def _move_carried_over(kernels: pl.DataFrame, devices: pl.Series) -> pl.DataFrame:
    """Move kernels without a launch before a device's first launched one out of that one's step.

    They were launched before the recording began, in the step before; null if the file does not show it.
    """
    if not {"step", "launch"} <= set(kernels.columns) or not kernels["launch"].null_count():
        return kernels
    device = devices[kernels["label"]].alias("device")
    launched = kernels.select("t", "step", device).filter(kernels["launch"].is_not_null())
    first = (
        launched.sort("t")
        .group_by("device")
        .agg(first_t=pl.col("t").first(), first_step=pl.col("step").first())
    )
    kernels = kernels.with_columns(device).join(first, on="device", how="left", maintain_order="left")
    is_carried_over = pl.col("launch").is_null() & (pl.col("t") < pl.col("first_t"))
    is_carried_over &= pl.col("step") == pl.col("first_step")
    before = pl.col("step") - 1
    before = pl.when(before.is_in(kernels["step"].implode())).then(before)
    kernels = kernels.with_columns(step=pl.when(is_carried_over).then(before).otherwise("step"))
    return kernels.drop("device", "first_t", "first_step")


def _expand_labels(rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Build rows of the event schema: their own columns, and those of their labels.

    A self time is a sum of stretches, which has no start.
    """
    if "is_self_time" in rows.columns:
        rows = rows.with_columns(t=pl.when(pl.col("is_self_time").is_null()).then("t"))
    columns = [labels[c].cast(pl.Categorical())[rows["label"]].alias(c) for c in _LABEL_COLUMNS]
    columns += [
        labels[source].cast(pl.Categorical())[rows[c]].alias(c)
        for c, source in (("launcher", "track"), ("line", "name"))
        if c in rows.columns
    ]
    columns += [labels[c][rows["label"]] for c in STEP_FIELDS if c in labels.columns]
    if labels["region"].count():
        columns.append(labels["region"].cast(pl.Categorical())[rows["label"]])
    names = set(rows.columns)
    row_columns = [c for c in _ROW_COLUMNS if c in names]
    frame = _merge_sources(put_columns(rows[row_columns], *columns, *_infer_from_launch(rows, labels)))
    is_host_work = rows["is_leaf"] & (labels["kind"] != "kernel")[rows["label"]]
    if is_host_work.any():
        kernel = pl.lit(pl.Series(["kernel"], dtype=pl.Categorical()))
        frame = frame.with_columns(kind=pl.when(rows["is_leaf"]).then(kernel).otherwise("kind"))
    return frame


def _merge_sources(frame: pl.DataFrame) -> pl.DataFrame:
    merged = []
    columns = set(frame.columns)
    for column, sources in _SOURCES.items():
        present = [frame[source] for source in sources if source in columns]
        merged += [reduce(fill_nulls, present).alias(column)] if present else []
    frame = put_columns(frame, *merged)
    return drop_columns(frame, *(set(chain(*_SOURCES.values())) - _SOURCES.keys()))


def _infer_from_launch(rows: pl.DataFrame, labels: pl.DataFrame) -> list[pl.Series]:
    """Infer `op` and `operator_category` from scope and operator, unless a kernel's name implies them."""
    ops: list[pl.Series] = []
    inferred = []
    if "op" in rows.columns:
        is_product = labels["is_product"][rows["label"]]
        if "operator_category" in rows.columns:
            is_product |= rows["operator_category"].is_in(list(PRODUCT_CATEGORIES)).fill_null(value=False)
        ops.append(keep_where(rows["op"], ~rows["is_products_only"] | is_product))
    if "operator_op" in rows.columns:
        ops.append(rows["operator_op"])
    if ops:
        has_open_op = labels["has_open_op"][rows["label"]]
        inferred.append(keep_where(reduce(fill_nulls, ops), has_open_op).alias("op"))
    if "operator_category" in rows.columns:
        is_open = labels["has_open_category"][rows["label"]]
        inferred.append(keep_where(rows["operator_category"], is_open))
    return inferred
