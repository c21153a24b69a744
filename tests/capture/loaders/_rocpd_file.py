"""rocpd databases in the layouts of rocprofv3, made from its published table definitions.

`python -m tests.capture.loaders._rocpd_file` writes them as fixtures. Schema 3 keeps times, process, agent
and stream in the rows; the later one refers to tables of times and of tracks. Tables end in the GUID of their
process, and views without it stand beside them, as rocprofv3 writes them.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.conftest import FIXTURES

GUID: Final = "_0000a1b2_c3d4_7e5f_8a9b_0c1d2e3f4a5b"
_INFO: Final = {
    "rocpd_metadata": "id INTEGER PRIMARY KEY, tag TEXT, value TEXT",
    "rocpd_string": "id INTEGER PRIMARY KEY, guid TEXT, string TEXT UNIQUE",
    "rocpd_info_node": "id INTEGER PRIMARY KEY, guid TEXT, hash BIGINT, machine_id TEXT, hostname TEXT",
    "rocpd_info_process": "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, ppid INTEGER, pid INTEGER",
    "rocpd_info_thread": "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, name",
    "rocpd_info_agent": (
        "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, type TEXT, absolute_index INTEGER, "
        "logical_index INTEGER, type_index INTEGER, name TEXT, product_name TEXT"
    ),
    "rocpd_info_kernel_symbol": (
        "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, kernel_name TEXT, display_name TEXT, "
        "arch_vgpr_count INTEGER"
    ),
    "rocpd_event": (
        "id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, "
        "correlation_id INTEGER, extdata JSONB DEFAULT '{}'"
    ),
}
_INLINE: Final = '"start" BIGINT, "end" BIGINT, nid INTEGER, pid INTEGER, tid INTEGER'
_REFERRED: Final = "start_id INTEGER, end_id INTEGER, track_id INTEGER"
_STREAM: Final = "agent_id INTEGER, queue_id INTEGER, stream_id INTEGER"
_SIZES: Final = ", ".join(f"{of}_size_{axis} INTEGER" for of in ("workgroup", "grid") for axis in "xyz")

STRINGS: Final = (
    "HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API", "KERNEL_DISPATCH", "MEMORY_COPY", "hipLaunchKernel",
    "roctxThreadRangeA", "MEMORY_COPY_DEVICE_TO_HOST", "hipMemcpyAsync",
)  # fmt: skip
# category, correlation (stack_id), extdata of each event; its number is its place
EVENTS: Final = (
    (2, 1, '{"message": "decode step 4"}'),
    (1, 2, "{}"),
    (1, 3, "{}"),
    (1, 4, "{}"),
    (3, 2, "{}"),
    (3, 3, "{}"),
    (4, 4, "{}"),
)
# start, end, name, event
REGIONS: Final = ((1_000, 9_000, 6, 1), (1_100, 1_300, 5, 2), (1_400, 1_600, 5, 3), (1_700, 1_900, 8, 4))
# start, end, kernel, event, sizes of a workgroup and of the grid, in threads
DISPATCHES: Final = (
    (2_000, 5_000, 21, 5, (256, 1, 1), (8192, 2, 1)),
    (5_200, 6_200, 22, 6, (64, 4, 1), (64, 64, 1)),
)
COPY: Final = (6_500, 6_900, 7, 7, 65_536)


def write(path: Path, *, referred: bool) -> Path:
    """Write a database; with times and tracks in tables of their own, or in the rows."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA page_size = 512")
        _tables(db, referred)
        _describe(db)
        stamps: dict[int, int] = {}
        tracks: dict[tuple[Any, ...], int] = {}

        def when(start: int, end: int, tid: int | None, stream: int | None) -> dict[str, Any]:
            device = {} if stream is None else {"agent_id": 2, "queue_id": 1, "stream_id": stream}
            if not referred:
                return {"start": start, "end": end, "nid": 1, "pid": 77, "tid": tid, **device}
            ids = [stamps.setdefault(t, len(stamps) + 1) for t in (start, end)]
            track = tracks.setdefault((tid, stream), len(tracks) + 1)
            return {"start_id": ids[0], "end_id": ids[1], "track_id": track}

        for start, end, name, event in REGIONS:
            _insert(db, "rocpd_region", name_id=name, event_id=event, **when(start, end, 78, None))
        for start, end, kernel, event, block, grid in DISPATCHES:
            sizes = {
                f"{of}_size_{axis}": n
                for of, all_ in (("workgroup", block), ("grid", grid))
                for axis, n in zip("xyz", all_, strict=True)
            }
            place = when(start, end, 78, 3)
            _insert(
                db,
                "rocpd_kernel_dispatch",
                kernel_id=kernel,
                event_id=event,
                group_segment_size=1024,
                **sizes,
                **place,
            )
        start, end, name, event, size = COPY
        ends = {"dst_agent_id": 1, "src_agent_id": 2}
        place = {k: v for k, v in when(start, end, 78, 3).items() if k != "agent_id"}
        _insert(db, "rocpd_memory_copy", name_id=name, event_id=event, size=size, **ends, **place)
        for value, id in stamps.items():
            _insert(db, "rocpd_timestamp", id=id, value=value, phase=0)
        for (tid, stream), id in tracks.items():
            agent = None if stream is None else 2
            _insert(db, "rocpd_track", id=id, nid=1, pid=77, tid=tid, agent_id=agent, stream_id=stream)
        db.commit()
    return path


def _tables(db: sqlite3.Connection, referred: bool) -> None:
    where = _REFERRED if referred else _INLINE
    device = "" if referred else f", {_STREAM}"
    tables = {
        **_INFO,
        "rocpd_region": f"id INTEGER PRIMARY KEY, guid TEXT, {where}, name_id INTEGER, event_id INTEGER",
        "rocpd_kernel_dispatch": (
            f"id INTEGER PRIMARY KEY, guid TEXT, {where}{device}, kernel_id INTEGER, {_SIZES}, "
            "group_segment_size INTEGER, event_id INTEGER"
        ),
        "rocpd_memory_copy": (
            f"id INTEGER PRIMARY KEY, guid TEXT, {where}{device.replace(' agent_id INTEGER,', '')}, "
            "name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, event_id INTEGER"
        ),
    }
    if referred:
        tables["rocpd_timestamp"] = "id INTEGER PRIMARY KEY, guid TEXT, value BIGINT, phase INTEGER"
        tables["rocpd_track"] = (
            f"id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, {_STREAM}"
        )
    for name, columns in tables.items():
        db.execute(f"CREATE TABLE IF NOT EXISTS `{name}{GUID}` ({columns})")
        db.execute(f"CREATE VIEW IF NOT EXISTS `{name}` AS SELECT * FROM `{name}{GUID}`")


def _describe(db: sqlite3.Connection) -> None:
    _insert(db, "rocpd_metadata", tag="schema_version", value="3")
    for id, string in enumerate(STRINGS, start=1):
        _insert(db, "rocpd_string", id=id, string=string)
    _insert(db, "rocpd_info_process", id=77, nid=1, pid=77)
    _insert(db, "rocpd_info_thread", id=78, nid=1, pid=77, tid=78, name="main")
    _insert(
        db, "rocpd_info_agent", id=1, nid=1, type="CPU", absolute_index=0, type_index=0, product_name="EPYC"
    )
    _insert(
        db, "rocpd_info_agent", id=2, nid=1, type="GPU", absolute_index=1, type_index=0, product_name="MI300X"
    )
    for id, name in ((21, "Cijk_Ailk_Bljk_BBS_BH"), (22, "void rmsnorm_kernel<float>(float*)")):
        _insert(
            db,
            "rocpd_info_kernel_symbol",
            id=id,
            kernel_name=f"{name}.kd",
            display_name=name,
            arch_vgpr_count=96,
        )
    for id, (category, stack, extdata) in enumerate(EVENTS, start=1):
        _insert(db, "rocpd_event", id=id, category_id=category, stack_id=stack, extdata=extdata)


def _insert(db: sqlite3.Connection, table: str, **values: Any) -> None:
    columns, marks = ", ".join(f'"{c}"' for c in values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO `{table}{GUID}` ({columns}) VALUES ({marks})", list(values.values()))


def main() -> None:
    write(FIXTURES / "rocprof" / "rocpd_times_in_rows.db", referred=False)
    write(FIXTURES / "rocprof" / "rocpd_times_apart.db", referred=True)


if __name__ == "__main__":
    main()
