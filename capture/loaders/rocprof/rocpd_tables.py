"""The tables of one process in a rocpd database, as rows of a Chrome trace's complete events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import polars as pl

from capture.loaders._database import Database, Wanted
from capture.loaders.chrome.tables import PLACE, Event

FURTHEST: Final = 1 << 62  # ns; what lies beyond is no time

_PLACE: Final = ("track_id", "event_id", "pid", "tid", "agent_id", "queue_id", "stream_id")
_TIMES: Final = ("start", "end", "start_id", "end_id")
_SIZES: Final = (
    "workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "grid_size_x", "grid_size_y", "grid_size_z",
    "group_segment_size",
)  # fmt: skip
_UNNAMED: Final = "unnamed"


@dataclass(frozen=True)
class Process:
    """What one process did."""

    pid: int | None
    parts: list[pl.DataFrame]  # t, dur, correlation, args, bytes, cat, name, place
    marks: list[Event]
    lanes: dict[str, str]
    devices: list[dict[str, Any]]


def read_process(db: Database, suffix: str) -> Process:
    """Return the events of the process whose tables end in a suffix."""
    reader = _Reader(db, suffix)
    parts = [reader.kernels(), reader.copies(), reader.regions()]
    pids = reader.table("rocpd_info_process", ("id", "pid"))
    return Process(
        pid=pids["pid"].drop_nulls().first() if pids.height else None,  # type: ignore[arg-type]
        parts=parts,
        marks=reader.marks(),
        lanes=reader.lanes(parts),
        devices=[
            {"id": id, "name": name}
            for id, name in reader.agents.filter("gpu").select("type_index", "product").iter_rows()
        ],
    )


class _Reader:
    """Reads the tables of one process; what many of them refer to is read once."""

    def __init__(self, db: Database, suffix: str) -> None:
        self.db, self.suffix = db, suffix
        self.strings = self.table("rocpd_string", ("id", "string"), ("string",))
        self.events = self._events()
        self.stamps = self.table("rocpd_timestamp", ("id", "value"))
        self.tracks = self.table("rocpd_track", ("id", *_PLACE[2:]))
        self.agents = self._agents()

    def table(self, name: str, columns: tuple[str, ...], texts: tuple[str, ...] = ()) -> pl.DataFrame:
        """Return a table of this process; one that is not there has no rows."""
        return self.db.read(Wanted(f"{name}{self.suffix}", columns, texts, needs=()))

    def kernels(self) -> pl.DataFrame:
        names = self.table(
            "rocpd_info_kernel_symbol",
            ("id", "title=display_name|kernel_name", "arch_vgpr_count"),
            ("title",),
        )
        rows = self._timed("rocpd_kernel_dispatch", ("kernel_id", *_SIZES))
        rows = rows.join(names, left_on="kernel_id", right_on="id", how="left", maintain_order="left")
        unknown = pl.format("kernel {}", pl.col("kernel_id").fill_null(-1))
        return rows.select(
            "t", "dur", "correlation", _launch(),
            pl.lit(None, dtype=pl.Float64).alias("bytes"),
            pl.lit("kernel").alias("cat"),
            pl.coalesce("title", unknown).alias("name"),
            _device_place("agent_id"),
        )  # fmt: skip

    def copies(self) -> pl.DataFrame:
        rows = self._timed("rocpd_memory_copy", ("name_id", "size", "dst_agent_id", "src_agent_id"))
        gpus = self.agents.filter("gpu")["id"].implode()
        agent = pl.coalesce(
            *(pl.when(pl.col(c).is_in(gpus)).then(c) for c in ("dst_agent_id", "src_agent_id")), "agent_id"
        )
        return self._named(rows).with_columns(agent=agent).select(
            "t", "dur", "correlation",
            pl.lit(None, dtype=pl.String).alias("args"),
            pl.col("size").cast(pl.Float64).alias("bytes"),
            pl.lit("gpu_memcpy").alias("cat"),
            "name",
            _device_place("agent"),
        )  # fmt: skip

    def regions(self) -> pl.DataFrame:
        """Return API calls and markers; a marker's name is the message that the program gave it."""
        rows = self._named(self._timed("rocpd_region", ("name_id",)))
        marker = pl.col("category").str.contains("MARKER").fill_null(value=False)
        return rows.select(
            "t", "dur",
            pl.when(~marker).then("correlation").alias("correlation"),
            pl.lit(None, dtype=pl.String).alias("args"),
            pl.lit(None, dtype=pl.Float64).alias("bytes"),
            pl.when(marker).then(pl.lit("user_annotation")).otherwise(pl.lit("cuda_runtime")).alias("cat"),
            pl.when(marker).then(pl.coalesce("message", "name")).otherwise("name").alias("name"),
            _host_place(),
        )  # fmt: skip

    def marks(self) -> list[Event]:
        """Return what the program marked at one moment."""
        rows = self.table("rocpd_sample", ("track_id", "name_id", "timestamp", "timestamp_id", "event_id"))
        rows = rows.join(self.stamps, left_on="timestamp_id", right_on="id", how="left")
        rows = self._named(rows.join(self.events, left_on="event_id", right_on="id", how="left"))
        rows = rows.with_columns(t=pl.coalesce("timestamp", "value"))
        kept = rows.filter(pl.col("t").is_between(0, FURTHEST) & pl.col("message").is_not_null()).sort("t")
        return [
            Event(ph="i", name=name, ts=msgspec.Raw(f"{t // 1000}.{t % 1000:03d}".encode()))
            for t, name in kept.select("t", "message").iter_rows()
        ]

    def lanes(self, parts: list[pl.DataFrame]) -> dict[str, str]:
        """Return the track of each place: a device with its stream, or a thread."""
        numbers = dict(self.agents.filter("gpu").select("id", "type_index").iter_rows())
        threads = dict(self.table("rocpd_info_thread", ("tid", "name"), ("name",)).iter_rows())
        places = pl.concat([part["place"] for part in parts]).unique().drop_nulls()
        return {place: _lane(place, numbers, threads) for place in places}

    def _timed(self, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
        """Return rows with their times, place and event, wherever the schema keeps those."""
        rows = self.table(name, (*_TIMES, *_PLACE, *columns))
        self.db.log.read += rows.height
        for id, column in (("start_id", "start"), ("end_id", "end")):
            stamps = self.stamps.rename({"value": f"{column}_stamp"})
            rows = rows.join(stamps, left_on=id, right_on="id", how="left", maintain_order="left")
        tracks = self.tracks.rename({c: f"{c}_track" for c in _PLACE[2:]})
        rows = rows.join(tracks, left_on="track_id", right_on="id", how="left", maintain_order="left")
        rows = rows.with_columns(
            *(pl.coalesce(c, f"{c}_track").alias(c) for c in _PLACE[2:]),
            t=pl.coalesce("start", "start_stamp"),
            stop=pl.coalesce("end", "end_stamp"),
        )
        kept = rows.filter(pl.col("t").is_between(0, FURTHEST) & pl.col("stop").is_between(0, FURTHEST))
        self.db.log.drop(
            "bad_time", f"rows of {name} without a start and an end", count=rows.height - kept.height
        )
        kept = kept.join(self.events, left_on="event_id", right_on="id", how="left", maintain_order="left")
        return kept.with_columns(dur=pl.col("stop") - pl.col("t"))

    def _named(self, rows: pl.DataFrame) -> pl.DataFrame:
        named = rows.join(self.strings, left_on="name_id", right_on="id", how="left", maintain_order="left")
        return named.with_columns(name=pl.col("string").fill_null(_UNNAMED)).drop("string")

    def _events(self) -> pl.DataFrame:
        """Return id, correlation, category and message of each event: what a launch and its work share."""
        events = self.table(
            "rocpd_event", ("id", "category_id", "correlation=stack_id", "extdata"), ("extdata",)
        )
        events = events.join(self.strings, left_on="category_id", right_on="id", how="left")
        marked = pl.col("string").str.contains("MARKER").fill_null(value=False)
        said = events.select(pl.when(marked).then("extdata"))[:, 0]
        # read here and not on a thread of polars, whose small stack deep brackets would overflow
        messages = pl.Series("message", [text and _message(text) for text in said], dtype=pl.String)
        return events.select(
            "id",
            pl.when(pl.col("correlation") > 0).then("correlation").alias("correlation"),  # 0 is none
            pl.col("string").alias("category"),
            messages,
        ).unique("id", keep="first")  # fmt: skip

    def _agents(self) -> pl.DataFrame:
        """Return id, gpu, type_index and product of each agent; GPUs are numbered from 0."""
        columns = ("id", "type", "type_index", "logical_index", "product=product_name|model_name|name")
        agents = self.table("rocpd_info_agent", columns, ("type", "product"))
        gpu = (pl.col("type") == "GPU").fill_null(value=False)
        return agents.with_columns(
            gpu=gpu,
            type_index=pl.coalesce("type_index", "logical_index"),
            product=pl.col("product").fill_null("?"),
        )


def _message(extdata: str) -> str | None:
    """Return the text that the program gave a marker."""
    try:
        read = msgspec.json.decode(extdata)
    except (ValueError, RecursionError):
        return None
    message = read.get("message") if isinstance(read, dict) else None
    return message if isinstance(message, str) and message else None


def _launch() -> pl.Expr:
    """Return how a kernel was launched, as a Chrome trace's kernel states it; the grid in workgroups."""
    blocks = [
        pl.when(pl.col(f"workgroup_size_{a}") > 0).then(
            pl.col(f"grid_size_{a}").floordiv(pl.col(f"workgroup_size_{a}"))
        )
        for a in "xyz"
    ]
    facts = pl.struct(
        pl.concat_list(blocks).alias("grid"),
        pl.concat_list(f"workgroup_size_{a}" for a in "xyz").alias("block"),
        pl.col("group_segment_size").alias("shared memory"),
        pl.col("arch_vgpr_count").alias("registers per thread"),
    )
    return facts.struct.json_encode().alias("args")


def _device_place(agent: str) -> pl.Expr:
    lane = pl.coalesce(
        pl.format("stream{}", pl.col("stream_id")), pl.format("queue{}", pl.col("queue_id")), pl.lit("copy")
    )
    return pl.format("agent {}{}{}", pl.col(agent).fill_null(-1), pl.lit(PLACE), lane).alias("place")


def _host_place() -> pl.Expr:
    pid, tid = pl.col("pid").fill_null(0), pl.col("tid").fill_null(0)
    return pl.format("{}{}{}", pid, pl.lit(PLACE), tid).alias("place")


def _lane(place: str, gpus: Mapping[int, int], threads: Mapping[int, str | None]) -> str:
    owner, _, lane = place.partition(PLACE)
    if owner.startswith("agent "):
        number = gpus.get(int(owner.removeprefix("agent ")))
        return f"gpu{'?' if number is None else number}/{lane}"
    return " ".join(filter(None, ("thread", lane, threads.get(int(lane)))))
