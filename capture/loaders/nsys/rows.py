"""The tables of an nsys export as event rows: device activity, API calls, NVTX ranges and marks."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from capture.importlog import Log
from capture.loaders.nsys.graph_steps import with_graph_steps
from capture.loaders.nsys.scopes import ELSEWHERE, Scopes, scopes
from capture.loaders.nsys.tables import COPY_KINDS, PLACE, Tables, named, with_resources

_MARK: Final = 34
_FREE_RANGES: Final = (60, 71)

RESOURCES: Final = ("grid", "block", "registers", "shared")  # of kernels
_WAIT_KINDS: Final = {1: "Event sync", 2: "Stream wait sync", 3: "Stream sync", 4: "Context sync"}
_NO_STREAM: Final = 1 << 31  # context-wide waits carry all ones as their stream
_TORCH_TAIL: Final = r", (?:(?:stashed )?seq|op_id|stack_id|sizes|input_op_ids) = .*$"
_TORCH_SEQUENCE: Final = r", (?:stashed )?seq = ([0-9]{1,18})(?:, |$)"
_TORCH_SIZES: Final = r", sizes = (\[.*?\])(?:, [a-z_]+ = |$)"


def events(tables: Tables, log: Log) -> pl.DataFrame:
    """Return all rows as events, device work placed in the NVTX ranges that launched it."""
    open_ranges = scopes(_ranges(tables, log), log)
    threads = _thread_names(tables)
    calls, replays = with_graph_steps(_calls_in_scopes(tables, open_ranges), tables, log)
    frames = [
        _device_events(tables, calls, open_ranges, threads, log),
        _call_events(calls, open_ranges, threads),
        _range_events(open_ranges, threads),
        _step_events(open_ranges, threads),
        *([replays.join(threads, on="thread", how="left").drop("thread")] if replays.height else []),
        _mark_events(tables, threads),
    ]
    return pl.concat(frames, how="diagonal")


def _device_events(
    tables: Tables, calls: pl.DataFrame, ranges: Scopes, threads: pl.DataFrame, log: Log
) -> pl.DataFrame:
    """Return kernels, copies, fills, whole graphs and waits, each with the path that its launch stood in."""
    copies = tables.copies.with_columns(name=_worded("copyKind", COPY_KINDS, "[CUDA memcpy {}]"))
    fills = tables.fills.with_columns(name=pl.lit("[CUDA memset]"))
    graphs = tables.graphs.with_columns(name=pl.format("CUDA graph {}", pl.col("graph").fill_null(-1)))
    waits = tables.waits.with_columns(name=_worded("syncType", _WAIT_KINDS, "[CUDA {}]"))
    kernels = named(with_resources(tables.kernels), tables.strings, "unnamed kernel")
    parts = (
        (kernels, "gpu", None),
        (copies, "gpu", "copy"),
        (fills, "gpu", "copy"),
        (graphs, "gpu", "other"),
        (waits, "wait", "wait"),
    )
    rows = pl.concat([_marked(*part) for part in parts], how="diagonal")
    rows = rows.with_columns(pid=_process("globalPid"), track=_gpu_track(rows))
    launchers = threads.rename({"track": "launcher"})
    placed = _placed(rows, calls, ranges, log)
    return placed.join(launchers, on="thread", how="left", maintain_order="left").select(
        pl.lit("kernel").alias("kind"),
        "name", "lens", "category", "track", "path", "step",
        "launch", "launch_dur", "launcher", *RESOURCES,
        pl.col("bytes").cast(pl.Float64),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _marked(rows: pl.DataFrame, lens: str, category: str | None) -> pl.DataFrame:
    """Return rows with their lens and category, and only the columns that all device rows share."""
    marked = rows.with_columns(
        pl.col("name").cast(pl.Categorical()),
        lens=pl.lit(lens),
        category=pl.lit(category, dtype=pl.String),
    )
    some = [c for c in ("bytes", *RESOURCES) if c in marked.columns]
    return marked.select(*PLACE, "name", "lens", "category", *some)


def _worded(column: str, words: Mapping[int, str], pattern: str) -> pl.Expr:
    word = pl.col(column).replace_strict(dict(words), default="of an unknown kind", return_dtype=pl.String)
    return pl.format(pattern, word)


def _gpu_track(rows: pl.DataFrame) -> pl.Series:
    """`gpu0/stream7`, with the process before it where several use that stream."""
    stream = pl.when(pl.col("streamId").is_between(0, _NO_STREAM)).then("streamId")
    shared = (_process("globalPid").n_unique() > 1).over("deviceId", "streamId")
    parts = (
        pl.when(shared).then(pl.format("pid{}", _process("globalPid") & 0xFFFFFF)),
        pl.format("gpu{}", pl.col("deviceId").cast(pl.String).fill_null("?")),
        pl.format("stream{}", stream),
    )
    track = pl.concat_str(parts, separator="/", ignore_nulls=True).cast(pl.Categorical())
    return rows.select(track=track).to_series()


def _process(column: str) -> pl.Expr:
    """Return the machine and process bits of a packed global id: correlation ids are unique within them
    only.
    """
    return pl.col(column).floordiv(1 << 24)


def _calls_in_scopes(tables: Tables, ranges: Scopes) -> pl.DataFrame:
    """Return API calls with the range open on their thread, or else on the home thread of their process."""
    calls = named(tables.calls, tables.strings, "unnamed call").sort("start", maintain_order=True)
    calls = calls.with_columns(pid=_process("globalTid"), thread=pl.col("globalTid")).drop("globalTid")
    calls = calls.join_asof(
        ranges.moments.drop("pid"), left_on="start", right_on="t", by="thread", check_sortedness=False
    ).drop("t")
    home = ranges.moments.join(ranges.homes, on=["pid", "thread"], how="semi").drop("thread")
    calls = calls.join_asof(
        home.rename({"scope": "home_scope"}), left_on="start", right_on="t", by="pid", check_sortedness=False
    ).drop("t")
    own_ranges = pl.col("thread").is_in(ranges.moments["thread"].unique().implode())
    lent = pl.when(pl.col("scope").is_null() & ~own_ranges).then("home_scope")
    steps = ranges.ranges.select("id", "step")
    calls = calls.with_columns(lent=lent)
    calls = calls.join(steps, left_on="scope", right_on="id", how="left", maintain_order="left")
    calls = calls.join(
        steps, left_on="home_scope", right_on="id", how="left", suffix="_home", maintain_order="left"
    )
    return calls.with_columns(step=pl.coalesce("step", "step_home")).drop("home_scope", "step_home")


def _placed(rows: pl.DataFrame, calls: pl.DataFrame, ranges: Scopes, log: Log) -> pl.DataFrame:
    """Return device rows with the path and step of the call that launched them, matched within their
    process.
    """
    processes = calls["pid"].unique().to_list()
    if len(processes) == 1 and processes != [None]:
        rows = rows.with_columns(pl.col("pid").fill_null(processes[0]))
    launches = calls.select(
        "pid", "correlationId", "scope", "lent", "step", "thread",
        launch="start", launch_dur=pl.col("end") - pl.col("start"), called=True,
    )  # fmt: skip
    launches = launches.unique(["pid", "correlationId"], keep="first", maintain_order=True)
    rows = rows.join(launches, on=["pid", "correlationId"], how="left", maintain_order="left")
    paths = ranges.ranges.select("id", pl.col("path").cast(pl.Categorical()))
    lent_paths = paths.with_columns(
        lent_path=pl.format("{} / {}", pl.col("path").cast(pl.String), pl.lit(ELSEWHERE)).cast(
            pl.Categorical()
        )
    ).drop("path")
    rows = rows.join(paths, left_on="scope", right_on="id", how="left", maintain_order="left")
    rows = rows.join(lent_paths, left_on="lent", right_on="id", how="left", maintain_order="left")
    if ranges.ranges.height:
        _note_placing(rows, log)
    return rows.with_columns(path=pl.coalesce("path", "lent_path"))


def _note_placing(rows: pl.DataFrame, log: Log) -> None:
    lent = rows["lent"].count()
    if lent:
        message = (
            "device rows launched from a thread without NVTX ranges; they were given the range that "
            f"their process's main thread was in at the launch, and their path ends in {ELSEWHERE}"
        )
        log.note("nvtx_lent", message, count=lent)
    orphans = rows["called"].null_count()
    if orphans:
        log.note(
            "no_launch", "device rows whose launch call is not in the file: no NVTX range", count=orphans
        )


def _ranges(tables: Tables, log: Log) -> pl.DataFrame:
    """Return push/pop and start/end ranges with their names.

    PyTorch's running numbers are taken off those.
    """
    rows = _with_text(tables.ranges.filter(pl.col("eventType").fill_null(59) != _MARK), tables.strings)
    backward = (pl.col("end") < pl.col("start")).fill_null(False)
    log.drop("bad_range", "NVTX ranges that end before they start", count=rows.filter(backward).height)
    rows = rows.filter(~backward)
    unclosed = rows["end"].null_count()
    if unclosed:
        log.note("nvtx_unclosed", "NVTX ranges that were never closed: no duration", count=unclosed)
    numbered = rows.select(pl.col("text").str.contains(_TORCH_TAIL).sum()).item()
    if numbered:
        log.note("torch_numbers", "range names whose PyTorch op numbers were taken off", count=numbered)
    return rows.select(
        "start",
        "end",
        thread="globalTid",
        pid=_process("globalTid"),
        name=pl.col("text").str.replace(_TORCH_TAIL, ""),
        seq=pl.col("text").str.extract(_TORCH_SEQUENCE).cast(pl.Int64),
        shape=pl.col("text").str.extract(_TORCH_SIZES),
        free=pl.col("eventType").is_in(_FREE_RANGES),
    )


def _with_text(rows: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    rows = rows.join(strings, left_on="textId", right_on="id", how="left", maintain_order="left")
    text = pl.coalesce("text", pl.col("value").cast(pl.String), pl.lit("unnamed"))
    return rows.with_columns(text=text).drop("value")


def _thread_names(tables: Tables) -> pl.DataFrame:
    """Return thread → `pid12/tid34 name`."""
    ids = pl.concat([tables.calls["globalTid"], tables.ranges["globalTid"]]).unique().drop_nulls()
    labels = named(tables.threads, tables.strings, "").unique("globalTid", keep="first")
    threads = ids.to_frame().join(labels, on="globalTid", how="left")
    number = pl.format("pid{}/tid{}", _process("globalTid") & 0xFFFFFF, pl.col("globalTid") & 0xFFFFFF)
    label = pl.concat_str(number, pl.col("name").cast(pl.String), separator=" ", ignore_nulls=True)
    return threads.select(thread="globalTid", track=label.str.strip_chars().cast(pl.Categorical()))


def _call_events(calls: pl.DataFrame, ranges: Scopes, threads: pl.DataFrame) -> pl.DataFrame:
    """Return runtime and driver calls: host time, which nests inside ranges and is never added to kernels."""
    paths = ranges.ranges.select("id", pl.col("path").cast(pl.Categorical()))
    rows = calls.join(paths, left_on="scope", right_on="id", how="left", maintain_order="left")
    names = calls["name"].unique().cast(pl.String)
    plain = pl.DataFrame({"name": names, "plain": names.str.replace(r"_v\d+$", "")}).cast(pl.Categorical())
    rows = rows.join(plain, on="name", how="left", maintain_order="left")
    return rows.join(threads, on="thread", how="left", maintain_order="left").select(
        "track", "path", "step",
        kind=pl.lit("span"),
        lens=pl.lit("host"),
        category=pl.lit("host"),
        name="plain",
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _range_events(ranges: Scopes, threads: pl.DataFrame) -> pl.DataFrame:
    rows = ranges.ranges.join(threads, on="thread", how="left", maintain_order="left")
    return rows.select(
        "track", "step", "phase", "layer",
        kind=pl.lit("span"),
        lens=pl.lit("wall"),
        name=pl.col("name").cast(pl.Categorical()),
        path=pl.col("parent_path").cast(pl.Categorical()),
        shape=pl.col("shape").cast(pl.Categorical()),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _step_events(ranges: Scopes, threads: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each closed outermost step range of the process that counts most steps."""
    steps = ranges.ranges.join(ranges.homes, on=["pid", "thread"], how="semi").filter(
        pl.col("own_step").is_not_null() & pl.col("outer_step").is_null() & pl.col("end").is_not_null()
    )
    most = steps["pid"].value_counts().sort("count", "pid", descending=[True, False])["pid"]
    steps = steps.filter(pl.col("pid").is_in(most.head(1).implode())).sort("start")
    return steps.join(threads, on="thread", how="left", maintain_order="left").select(
        "track", "phase", "step",
        pl.col("name").cast(pl.Categorical()),
        kind=pl.lit("step"),
        lens=pl.lit("wall"),
        t="start",
        dur=pl.col("end") - pl.col("start"),
    )  # fmt: skip


def _mark_events(tables: Tables, threads: pl.DataFrame) -> pl.DataFrame:
    rows = _with_text(tables.ranges.filter(pl.col("eventType") == _MARK), tables.strings)
    rows = rows.rename({"globalTid": "thread"}).join(threads, on="thread", how="left", maintain_order="left")
    return rows.select(
        "track",
        kind=pl.lit("mark"),
        name=pl.col("text").cast(pl.Categorical()),
        path=pl.lit("note").cast(pl.Categorical()),
        t="start",
    )
