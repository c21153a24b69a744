"""Convert the tables of an nsys export to events: device work, API calls, NVTX ranges and marks, steps."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from capture.dense_lookup import evaluate_per_distinct
from capture.import_log import Log
from capture.loaders.nsys.export_tables import (
    COPY_KINDS,
    DEVICE_COLUMNS,
    ExportTables,
    with_names,
    with_resources,
)
from capture.loaders.nsys.nvtx_scopes import OTHER_THREAD, NvtxScopes, build_scopes
from capture.step_ends import GRAPH_LAUNCH_PATTERN, REPLAY_STEP_NAME, derive_replay_steps

_MARK_EVENT: Final = 34
_START_END_RANGES: Final = (60, 71)

RESOURCE_COLUMNS: Final = ("grid", "block", "registers", "shared")
_WAIT_KINDS: Final = {1: "Event sync", 2: "Stream wait sync", 3: "Stream sync", 4: "Context sync"}
_NO_STREAM: Final = 1 << 31  # the stream of context-wide waits is all ones
_TORCH_TAIL: Final = r", (?:(?:stashed )?seq|op_id|stack_id|sizes|input_op_ids) = .*$"
_TORCH_SEQUENCE: Final = r", (?:stashed )?seq = ([0-9]{1,18})(?:, |$)"
_TORCH_SIZES: Final = r", sizes = (\[.*?\])(?:, [a-z_]+ = |$)"


def build_events(tables: ExportTables, log: Log) -> pl.DataFrame:
    """Convert all rows to events; device work gets the NVTX path of its launch."""
    scopes = build_scopes(_read_ranges(tables, log), log)
    threads = _build_thread_names(tables)
    calls, replay_steps = _with_graph_steps(_read_calls(tables, scopes), threads, tables, log)
    frames = [
        _build_device_events(tables, calls, scopes, threads, log),
        _build_call_events(calls, scopes, threads),
        _build_range_events(scopes, threads),
        _build_step_events(scopes, threads),
        replay_steps,
        _build_mark_events(tables, threads),
    ]
    return pl.concat(frames, how="diagonal")


def _build_device_events(
    tables: ExportTables, calls: pl.DataFrame, scopes: NvtxScopes, threads: pl.DataFrame, log: Log
) -> pl.DataFrame:
    """Convert kernels, copies, fills, whole graphs and waits, with the path of their launch."""
    copies = tables.copies.with_columns(name=_format_code("copyKind", COPY_KINDS, "[CUDA memcpy {}]"))
    fills = tables.fills.with_columns(name=pl.lit("[CUDA memset]"))
    graphs = tables.graphs.with_columns(name=pl.format("CUDA graph {}", pl.col("graph").fill_null(-1)))
    waits = tables.waits.with_columns(name=_format_code("syncType", _WAIT_KINDS, "[CUDA {}]"))
    kernels = with_names(with_resources(tables.kernels), tables.strings, "unnamed kernel")
    parts = (
        (kernels, "gpu", None),
        (copies, "gpu", "copy"),
        (fills, "gpu", "copy"),
        (graphs, "gpu", "other"),
        (waits, "wait", "wait"),
    )
    rows = pl.concat([_select_device_columns(*part) for part in parts], how="diagonal")
    rows = rows.with_columns(pid=_extract_process("globalPid"), track=_build_gpu_tracks(rows))
    launchers = threads.rename({"track": "launcher"})
    attributed = _attribute_rows(rows, calls, scopes, log)
    return attributed.join(launchers, on="thread", how="left", maintain_order="left").select(
        pl.lit("kernel").alias("kind"),
        "name", "lens", "category", "track", "path", "step",
        "launch", "launch_dur", "launcher", *RESOURCE_COLUMNS,
        pl.col("bytes").cast(pl.Float64),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _select_device_columns(rows: pl.DataFrame, lens: str, category: str | None) -> pl.DataFrame:
    """Add lens and category; keep only the columns that all device rows share."""
    rows_with_lens = rows.with_columns(
        pl.col("name").cast(pl.Categorical()), lens=pl.lit(lens), category=pl.lit(category, dtype=pl.String)
    )
    optional = [c for c in ("bytes", *RESOURCE_COLUMNS) if c in rows_with_lens.columns]
    return rows_with_lens.select(*DEVICE_COLUMNS, "name", "lens", "category", *optional)


def _format_code(code: str, names: Mapping[int, str], pattern: str) -> pl.Expr:
    default = "of an unknown kind"
    return pl.format(pattern, pl.col(code).replace_strict(names, default=default, return_dtype=pl.String))


def _build_gpu_tracks(rows: pl.DataFrame) -> pl.Series:
    """Build `gpu0/stream7`, preceded by the process if several processes use that stream."""
    stream = pl.when(pl.col("streamId").is_between(0, _NO_STREAM)).then("streamId")
    is_shared = (_extract_process("globalPid").n_unique() > 1).over("deviceId", "streamId")
    parts = (
        pl.when(is_shared).then(pl.format("pid{}", _extract_process("globalPid") & 0xFFFFFF)),
        pl.format("gpu{}", pl.col("deviceId").cast(pl.String).fill_null("?")),
        pl.format("stream{}", stream),
    )
    track = pl.concat_str(parts, separator="/", ignore_nulls=True).cast(pl.Categorical())
    return rows.select(track=track).to_series()


def _extract_process(column: str) -> pl.Expr:
    """Machine and process bits of a packed global id: correlation ids are unique only within them."""
    return pl.col(column).floordiv(1 << 24)


def _read_calls(tables: ExportTables, ranges: NvtxScopes) -> pl.DataFrame:
    """Read API calls, with the range open on their thread, else on the main thread of their process."""
    calls = with_names(tables.calls, tables.strings, "unnamed call").sort("start", maintain_order=True)
    calls = calls.rename({"globalTid": "thread"}).with_columns(pid=_extract_process("thread"))
    calls = calls.join_asof(
        ranges.changes.drop("pid"), left_on="start", right_on="t", by="thread", check_sortedness=False
    ).drop("t")
    main_ranges = ranges.changes.join(ranges.main_threads, on=["pid", "thread"], how="semi").drop("thread")
    main_ranges = main_ranges.rename({"scope": "home_scope", "t": "start"})
    calls = calls.join_asof(main_ranges, on="start", by="pid", check_sortedness=False)
    has_ranges = pl.col("thread").is_in(ranges.changes["thread"].unique().implode())
    borrowed = pl.when(pl.col("scope").is_null() & ~has_ranges).then("home_scope")
    steps = ranges.ranges.select("id", "step")
    calls = calls.with_columns(borrowed=borrowed)
    calls = calls.join(steps, left_on="scope", right_on="id", how="left", maintain_order="left")
    steps = steps.rename({"id": "home_scope", "step": "home_step"})
    calls = calls.join(steps, on="home_scope", how="left", maintain_order="left")
    return calls.with_columns(step=pl.coalesce("step", "home_step")).drop("home_scope", "home_step")


def _attribute_rows(rows: pl.DataFrame, calls: pl.DataFrame, ranges: NvtxScopes, log: Log) -> pl.DataFrame:
    """Give device rows the path and step of the call that launched them, matched within its process."""
    processes = calls["pid"].unique().to_list()
    if len(processes) == 1 and processes != [None]:
        rows = rows.with_columns(pl.col("pid").fill_null(processes[0]))
    launch_calls = calls.select(
        "pid", "correlationId", "scope", "borrowed", "step", "thread",
        launch="start", launch_dur=pl.col("end") - pl.col("start"), called=True,
    )  # fmt: skip
    launch_calls = launch_calls.unique(["pid", "correlationId"], keep="first", maintain_order=True)
    rows = rows.join(launch_calls, on=["pid", "correlationId"], how="left", maintain_order="left")
    paths = ranges.ranges.select("id", pl.col("path").cast(pl.Categorical()))
    borrowed_path = pl.format("{} / {}", pl.col("path").cast(pl.String), pl.lit(OTHER_THREAD))
    borrowed_paths = paths.select("id", borrowed_path=borrowed_path.cast(pl.Categorical()))
    rows = rows.join(paths, left_on="scope", right_on="id", how="left", maintain_order="left")
    rows = rows.join(borrowed_paths, left_on="borrowed", right_on="id", how="left", maintain_order="left")
    if ranges.ranges.height:
        _note_attribution(rows, log)
    return rows.with_columns(path=pl.coalesce("path", "borrowed_path"))


def _note_attribution(rows: pl.DataFrame, log: Log) -> None:
    if borrowed := rows["borrowed"].count():
        message = (
            "device rows launched from a thread without NVTX ranges got the range that "
            f"was open on their process's main thread; their path ends in {OTHER_THREAD}"
        )
        log.note("nvtx_lent", message, count=borrowed)
    if without_launch := rows["called"].null_count():
        message = "device rows without an NVTX range: their launch call is not in the file"
        log.note("no_launch", message, count=without_launch)


def _read_ranges(tables: ExportTables, log: Log) -> pl.DataFrame:
    """Read push/pop and start/end ranges; PyTorch's op numbers are removed from their names."""
    rows = _with_text(tables.ranges.filter(pl.col("eventType").fill_null(59) != _MARK_EVENT), tables.strings)
    is_backward = (pl.col("end") < pl.col("start")).fill_null(False)
    log.drop("bad_range", "NVTX ranges that end before they start", count=rows.filter(is_backward).height)
    rows = rows.filter(~is_backward)
    if unclosed_count := rows["end"].null_count():
        log.note("nvtx_unclosed", "NVTX ranges without a duration: never closed", count=unclosed_count)
    if numbered_count := rows.select(pl.col("text").str.contains(_TORCH_TAIL).sum()).item():
        message = "range names without their PyTorch op numbers, which were removed"
        log.note("torch_numbers", message, count=numbered_count)
    return rows.select(
        "start",
        "end",
        thread="globalTid",
        pid=_extract_process("globalTid"),
        name=pl.col("text").str.replace(_TORCH_TAIL, ""),
        seq=pl.col("text").str.extract(_TORCH_SEQUENCE).cast(pl.Int64),
        shape=pl.col("text").str.extract(_TORCH_SIZES),
        free=pl.col("eventType").is_in(_START_END_RANGES),
    )


def _with_text(rows: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    rows = rows.join(strings, left_on="textId", right_on="id", how="left", maintain_order="left")
    text = pl.coalesce("text", pl.col("value").cast(pl.String), pl.lit("unnamed"))
    return rows.with_columns(text=text).drop("value")


def _build_thread_names(tables: ExportTables) -> pl.DataFrame:
    """Map threads to `pid12/tid34 name`."""
    ids = pl.concat([tables.calls["globalTid"], tables.ranges["globalTid"]]).unique().drop_nulls()
    labels = with_names(tables.threads, tables.strings, "").unique("globalTid", keep="first")
    threads = ids.to_frame().join(labels, on="globalTid", how="left")
    pid, tid = _extract_process("globalTid") & 0xFFFFFF, pl.col("globalTid") & 0xFFFFFF
    number = pl.format("pid{}/tid{}", pid, tid)
    label = pl.concat_str(number, pl.col("name").cast(pl.String), separator=" ", ignore_nulls=True)
    return threads.select(thread="globalTid", track=label.str.strip_chars().cast(pl.Categorical()))


def _build_call_events(calls: pl.DataFrame, scopes: NvtxScopes, threads: pl.DataFrame) -> pl.DataFrame:
    """Convert runtime and driver calls: host time, nested inside ranges and never added to kernels."""
    paths = scopes.ranges.select("id", pl.col("path").cast(pl.Categorical()))
    rows = calls.join(paths, left_on="scope", right_on="id", how="left", maintain_order="left")
    without_version = pl.col("name").cast(pl.String).str.replace(r"_v\d+$", "")
    names = evaluate_per_distinct(rows, ["name"], without_version)
    return rows.join(threads, on="thread", how="left", maintain_order="left").select(
        "track", "path", "step", names,
        kind=pl.lit("span"), lens=pl.lit("host"), category=pl.lit("host"),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _build_range_events(scopes: NvtxScopes, threads: pl.DataFrame) -> pl.DataFrame:
    rows = scopes.ranges.join(threads, on="thread", how="left", maintain_order="left")
    return rows.select(
        "track", "step", "phase", "layer",
        kind=pl.lit("span"), lens=pl.lit("wall"),
        name=pl.col("name").cast(pl.Categorical()),
        path=pl.col("parent_path").cast(pl.Categorical()),
        shape=pl.col("shape").cast(pl.Categorical()),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _build_step_events(scopes: NvtxScopes, threads: pl.DataFrame) -> pl.DataFrame:
    """Build one row per closed outermost step range, of the process that counts most steps."""
    steps = scopes.ranges.join(scopes.main_threads, on=["pid", "thread"], how="semi").filter(
        pl.col("own_step").is_not_null() & pl.col("outer_step").is_null() & pl.col("end").is_not_null()
    )
    process_by_steps = steps["pid"].value_counts().sort("count", "pid", descending=[True, False])["pid"]
    steps = steps.filter(pl.col("pid").is_in(process_by_steps.head(1).implode())).sort("start")
    return steps.join(threads, on="thread", how="left", maintain_order="left").select(
        "track", "phase", "step",
        pl.col("name").cast(pl.Categorical()),
        kind=pl.lit("step"), lens=pl.lit("wall"),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _build_mark_events(tables: ExportTables, threads: pl.DataFrame) -> pl.DataFrame:
    rows = _with_text(tables.ranges.filter(pl.col("eventType") == _MARK_EVENT), tables.strings)
    rows = rows.rename({"globalTid": "thread"}).join(threads, on="thread", how="left", maintain_order="left")
    name, path = pl.col("text").cast(pl.Categorical()), pl.lit("note").cast(pl.Categorical())
    return rows.select("track", kind=pl.lit("mark"), name=name, path=path, t="start")


def _with_graph_steps(
    calls: pl.DataFrame, threads: pl.DataFrame, tables: ExportTables, log: Log
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Number API calls by the graph launch they follow; also return a row per step.

    Applies only if no range marks a step, one process launches all graphs, and their kernels are in the file.
    Otherwise the calls are unchanged and there are no step rows.
    """
    launches = calls.filter(pl.col("name").cast(pl.String).str.contains(GRAPH_LAUNCH_PATTERN))
    if calls["step"].null_count() < calls.height or launches["pid"].n_unique() != 1:
        return calls, pl.DataFrame()
    kernels = tables.kernels.drop_nulls(["start", "end", "correlationId"]).select(
        key="correlationId",
        name=pl.coalesce(pl.col("graphNodeId").cast(pl.Int64), pl.col("name").cast(pl.Int64)),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )
    steps = derive_replay_steps(launches.select(t="start", key="correlationId"), kernels, log)
    if steps.is_empty():
        return calls, pl.DataFrame()
    spans = steps.with_columns(start="t", ends=pl.col("t") + pl.col("dur"))
    calls_in_steps = calls.drop("step").join_asof(spans, on="start", strategy="backward")
    is_in_step = (pl.col("start") < pl.col("ends")) & (pl.col("pid") == launches["pid"][0])
    calls_in_steps = calls_in_steps.with_columns(step=pl.when(is_in_step).then("step"))
    thread = pl.lit(launches["thread"][0], dtype=calls.schema["thread"])
    name = pl.lit(REPLAY_STEP_NAME, dtype=pl.Categorical())
    rows = steps.with_columns(kind=pl.lit("step"), name=name, lens=pl.lit("wall"), thread=thread)
    rows = rows.join(threads, on="thread", how="left").drop("thread")
    return calls_in_steps.select(calls.columns), rows
