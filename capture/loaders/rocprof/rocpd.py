"""rocpd databases, the default output of rocprofv3: one SQLite file with a set of tables per process.

Read: kernel dispatches, memory copies, API calls, markers (roctx) as scopes, agents as devices; of schemas 3
and 4, with times in the rows or in a table of their own. Not read: counters, allocations, program-counter
samples, arguments of calls; nor the file's views, which are foreign code.
rocpd: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.loaders._json_document import decode_or_none
from capture.loaders._sqlite import MAGIC, ROCPD, Database, DatabaseFormat, TableQuery, open_database
from capture.loaders.chrome.trace_model import THREAD_SEPARATOR, CompleteEvents, Trace, TraceEvent, encode_us
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "rocpd"
PRODUCER: Final = "AMD rocprofv3, rocprof-sys"
HOWTO: Final = "rocprofv3 --sys-trace --output-format rocpd -- python run.py"
_DATABASE_FORMAT: Final = DatabaseFormat("a rocpd database", frozenset(), "copy or record it again")
_EVENT_TABLE: Final = re.compile(r"rocpd_kernel_dispatch|rocpd_region|rocpd_memory_copy")
MAX_TIMESTAMP_NS: Final = 1 << 62  # later times are invalid
_PLACE_COLUMNS: Final = ("track_id", "event_id", "pid", "tid", "agent_id", "queue_id", "stream_id")
_TIME_ID_COLUMNS: Final = ("start", "end", "start_id", "end_id")
_LAUNCH_SIZE_COLUMNS: Final = (
    "workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "grid_size_x", "grid_size_y", "grid_size_z",
    "group_segment_size",
)  # fmt: skip
_UNNAMED: Final = "unnamed"


class _ProcessReader:
    """Read the tables of one process; tables that many rows refer to are read once."""

    def __init__(self, db: Database, suffix: str) -> None:
        self.db, self.suffix = db, suffix
        self.strings = self.read_table("rocpd_string", ("id", "string"), ("string",))
        self.events = self._read_events()
        self.stamps = self.read_table("rocpd_timestamp", ("id", "value"))
        self.tracks = self.read_table("rocpd_track", ("id", *_PLACE_COLUMNS[2:]))
        self.agents = self._read_agents()

    def read_table(self, name: str, columns: tuple[str, ...], texts: tuple[str, ...] = ()) -> pl.DataFrame:
        """Read a table of this process; a missing one has no rows."""
        return self.db.read(TableQuery(f"{name}{self.suffix}", columns, texts, needs=()))

    def read_kernels(self) -> pl.DataFrame:
        columns = ("id", "title=display_name|kernel_name", "arch_vgpr_count")
        names = self.read_table("rocpd_info_kernel_symbol", columns, ("title",))
        rows = self._read_timed("rocpd_kernel_dispatch", ("kernel_id", *_LAUNCH_SIZE_COLUMNS))
        rows = rows.join(names, left_on="kernel_id", right_on="id", how="left", maintain_order="left")
        unknown = pl.format("kernel {}", pl.col("kernel_id").fill_null(-1))
        return rows.select(
            "t", "dur", "correlation", _launch_args(), _device_place("agent_id"),
            cat=pl.lit("kernel"), name=pl.coalesce("title", unknown),
        )  # fmt: skip

    def read_copies(self) -> pl.DataFrame:
        rows = self._read_timed("rocpd_memory_copy", ("name_id", "size", "dst_agent_id", "src_agent_id"))
        gpus = self.agents.filter("gpu")["id"].implode()
        ends = (pl.when(pl.col(end).is_in(gpus)).then(end) for end in ("dst_agent_id", "src_agent_id"))
        agent = pl.coalesce(*ends, "agent_id")
        return self._with_names(rows).with_columns(agent=agent).select(
            "t", "dur", "correlation", "name", _device_place("agent"),
            cat=pl.lit("gpu_memcpy"), bytes=pl.col("size").cast(pl.Float64),
        )  # fmt: skip

    def read_regions(self) -> pl.DataFrame:
        """Read API calls and markers; a marker's name is the message that the program gave it."""
        rows = self._with_names(self._read_timed("rocpd_region", ("name_id",)))
        is_marker = pl.col("category").str.contains("MARKER").fill_null(value=False)
        pid, tid = pl.col("pid").fill_null(0), pl.col("tid").fill_null(0)
        return rows.select(
            "t", "dur",
            correlation=pl.when(~is_marker).then("correlation"),
            cat=pl.when(is_marker).then(pl.lit("user_annotation")).otherwise(pl.lit("cuda_runtime")),
            name=pl.when(is_marker).then(pl.coalesce("message", "name")).otherwise("name"),
            thread=pl.format("{}{}{}", pid, pl.lit(THREAD_SEPARATOR), tid),
        )  # fmt: skip

    def read_marks(self) -> list[TraceEvent]:
        """Read what the program marked at one time."""
        columns = ("track_id", "name_id", "timestamp", "timestamp_id", "event_id")
        rows = self.read_table("rocpd_sample", columns)
        rows = rows.join(self.stamps, left_on="timestamp_id", right_on="id", how="left")
        rows = self._with_names(rows.join(self.events, left_on="event_id", right_on="id", how="left"))
        rows = rows.with_columns(t=pl.coalesce("timestamp", "value"))
        is_valid = pl.col("t").is_between(0, MAX_TIMESTAMP_NS) & pl.col("message").is_not_null()
        marks = rows.filter(is_valid).sort("t").select("t", "message").rows()
        return [TraceEvent(ph="i", name=name, ts=encode_us(t)) for t, name in marks]

    def map_tracks(self, places: pl.Series) -> dict[str, str]:
        """Map each place to its track: a device with its stream, or a thread."""
        numbers = dict(self.agents.filter("gpu").select("id", "type_index").iter_rows())
        threads = dict(self.read_table("rocpd_info_thread", ("tid", "name"), ("name",)).iter_rows())
        return {place: _describe_track(place, numbers, threads) for place in places.unique().drop_nulls()}

    def _read_timed(self, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
        """Read rows with their times, place and event, wherever the schema keeps those."""
        rows = self.read_table(name, (*_TIME_ID_COLUMNS, *_PLACE_COLUMNS, *columns))
        self.db.log.read += rows.height
        for id, column in (("start_id", "start"), ("end_id", "end")):
            stamps = self.stamps.rename({"value": f"{column}_stamp"})
            rows = rows.join(stamps, left_on=id, right_on="id", how="left", maintain_order="left")
        tracks = self.tracks.rename({c: f"{c}_track" for c in _PLACE_COLUMNS[2:]})
        rows = rows.join(tracks, left_on="track_id", right_on="id", how="left", maintain_order="left")
        rows = rows.with_columns(
            *(pl.coalesce(c, f"{c}_track").alias(c) for c in _PLACE_COLUMNS[2:]),
            t=pl.coalesce("start", "start_stamp"),
            stop=pl.coalesce("end", "end_stamp"),
        )
        valid = rows.filter(pl.col(c).is_between(0, MAX_TIMESTAMP_NS) for c in ("t", "stop"))
        lost_count = rows.height - valid.height
        self.db.log.drop("bad_time", f"rows of {name} without a start and an end", count=lost_count)
        valid = valid.join(self.events, left_on="event_id", right_on="id", how="left", maintain_order="left")
        return valid.with_columns(dur=pl.col("stop") - pl.col("t"))

    def _with_names(self, rows: pl.DataFrame) -> pl.DataFrame:
        named = rows.join(self.strings, left_on="name_id", right_on="id", how="left", maintain_order="left")
        return named.with_columns(name=pl.col("string").fill_null(_UNNAMED)).drop("string")

    def _read_events(self) -> pl.DataFrame:
        """Read id, correlation, category and message of each event: what a launch and its work share."""
        columns = ("id", "category_id", "correlation=stack_id", "extdata")
        events = self.read_table("rocpd_event", columns, ("extdata",))
        events = events.join(self.strings, left_on="category_id", right_on="id", how="left")
        is_marker = pl.col("string").str.contains("MARKER").fill_null(value=False)
        extdata = events.select(pl.when(is_marker).then("extdata"))[:, 0]
        # parsed on this thread: deeply nested JSON would overflow the small stack of polars' threads
        messages = pl.Series("message", [text and _parse_message(text) for text in extdata], dtype=pl.String)
        return events.select(
            "id",
            pl.when(pl.col("correlation") > 0).then("correlation").alias("correlation"),  # 0: none
            pl.col("string").alias("category"),
            messages,
        ).unique("id", keep="first")  # fmt: skip

    def _read_agents(self) -> pl.DataFrame:
        """Read id, gpu, type_index and product of each agent; GPUs are numbered from 0."""
        columns = ("id", "type", "type_index", "logical_index", "product=product_name|model_name|name")
        agents = self.read_table("rocpd_info_agent", columns, ("type", "product"))
        is_gpu = (pl.col("type") == "GPU").fill_null(value=False)
        index = pl.coalesce("type_index", "logical_index")
        return agents.with_columns(pl.col("product").fill_null("?"), gpu=is_gpu, type_index=index)


def sniff(head: Head) -> bool:
    return head.raw.startswith(MAGIC) and ROCPD.search(head.raw) is not None


def load(source: Source) -> list[Run]:
    """Read a file as one run per process."""
    with open_database(source, _DATABASE_FORMAT) as db:
        # the names of a process's tables end in an underscore and its GUID, or in nothing
        suffixes = {name[match.end() :] for name in db.tables if (match := _EVENT_TABLE.match(name))}
        traces = [_read_process(db, suffix) for suffix in sorted(suffixes)]
    if not any(trace.complete.rows.height for trace, _ in traces):
        raise UnreadableError("is a rocpd database without kernels, copies or calls", where=source.label)
    parts = [f" pid {pid}" if len(traces) > 1 else "" for _, pid in traces]
    return [convert_to_run(trace, source, part=part) for (trace, _), part in zip(traces, parts, strict=True)]


def _read_process(db: Database, suffix: str) -> tuple[Trace, int | None]:
    """Read the work of the process whose table names end in a suffix; also return its id."""
    reader = _ProcessReader(db, suffix)
    rows = pl.concat([reader.read_kernels(), reader.read_copies(), reader.read_regions()], how="diagonal")
    labels = rows.select("cat", "name", "thread").unique(maintain_order=True).with_row_index("label")
    labelled = rows.join(labels, on=["cat", "name", "thread"], how="left", maintain_order="left")
    complete = CompleteEvents(
        labelled.select(
            pl.col("label").cast(pl.UInt32), "t", "dur", "correlation",
            pl.lit(None, dtype=pl.Int64).alias("external_id"),
            pl.col("args").cast(pl.Categorical()), "bytes",
        ),
        labels.drop("label"),
    )  # fmt: skip
    devices = reader.agents.filter("gpu").select(id="type_index", name="product").to_dicts()
    trace = Trace(complete, reader.read_marks(), {"deviceProperties": devices}, producer="rocprofv3")
    trace.tracks = reader.map_tracks(labels["thread"])
    pids = reader.read_table("rocpd_info_process", ("id", "pid"))["pid"].drop_nulls()
    return trace, pids[0] if pids.len() else None


def _parse_message(extdata: str) -> str | None:
    """Parse the text that the program gave a marker."""
    data = decode_or_none(msgspec.json.decode, extdata)
    message = data.get("message") if isinstance(data, dict) else None
    return message if isinstance(message, str) and message else None


def _launch_args() -> pl.Expr:
    """Launch configuration as JSON, as in a Chrome trace; the grid in workgroups."""
    sizes = [(pl.col(f"grid_size_{axis}"), pl.col(f"workgroup_size_{axis}")) for axis in "xyz"]
    blocks = [pl.when(group > 0).then(grid.floordiv(group)) for grid, group in sizes]
    config = pl.struct(
        pl.concat_list(blocks).alias("grid"),
        pl.concat_list(f"workgroup_size_{axis}" for axis in "xyz").alias("block"),
        pl.col("group_segment_size").alias("shared memory"),
        pl.col("arch_vgpr_count").alias("registers per thread"),
    )
    return config.struct.json_encode().alias("args")


def _device_place(agent: str) -> pl.Expr:
    stream, queue = (pl.format(f"{kind}{{}}", pl.col(f"{kind}_id")) for kind in ("stream", "queue"))
    lane = pl.coalesce(stream, queue, pl.lit("copy"))
    agent_id = pl.col(agent).fill_null(-1)
    return pl.format("agent {}{}{}", agent_id, pl.lit(THREAD_SEPARATOR), lane).alias("thread")


def _describe_track(place: str, gpus: Mapping[int, int], threads: Mapping[int, str | None]) -> str:
    owner, _, lane = place.partition(THREAD_SEPARATOR)
    if owner.startswith("agent "):
        gpu_index = gpus.get(int(owner.removeprefix("agent ")))
        return f"gpu{'?' if gpu_index is None else gpu_index}/{lane}"
    return " ".join(filter(None, ("thread", lane, threads.get(int(lane)))))
