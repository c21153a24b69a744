"""Valid but extreme binary profiles, of which the grammar knows how many records it wrote.

python -m tests.capture.loaders.binary_grammar [--inputs 10000] [--seed 1] [--first 0] [--kind xplane]

Each record has a number in its name: a run must show it, or count it as dropped. Nothing but our own
sentences may be raised, within 20 s of the processor and 1 GB. The first fault ends it.
"""

import argparse
import gzip
import io
import json
import resource
import sqlite3
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.export_runs import export
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.run import MAX_DURATION_NS
from tests.capture.loaders import _nsys_file as nsys
from tests.capture.loaders._wire import message
from tests.capture.loaders._xplane_file import STATS, plane, space, stat
from tests.capture.loaders.chrome_grammar import NAMES, TOKEN, limit_time

LARGEST_BYTES: Final = 1 << 30
EDGES: Final = (0, 1, -1, 7, 999, 1 << 31, (1 << 63) - 1, -(1 << 63))
USUAL: Final = (0, 1, 10, 500, 1_000_000)
NAMED_STATS: Final = tuple(name for name in STATS if name != "step_num")  # which gives a step its name
EPOCH: Final = 1_750_000_000_000_000_000


@dataclass
class Written:
    """What a file holds, by the grammar's own count."""

    shown: set[int] = field(default_factory=set)  # numbers of the records that a run must show
    others: int = 0  # records that no run can show: they must be counted as dropped
    is_refused: bool = False  # the file is none that is read: a sentence says so


class Names:
    """Draws names, each with a number of its own."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.count = draw, 0

    def make(self) -> tuple[int, str]:
        self.count += 1
        return self.count, f"#{self.count}#{self.draw.choice(NAMES)}"


def write_xplane(draw: Random, path: Path) -> Written:
    """Write planes of devices and hosts, with times at the edges, and events that only sum up others."""
    names, written = Names(draw), Written()
    planes = []
    for number in range(draw.randint(1, 3)):
        title = draw.choice(("/device:GPU:0", "/device:TPU:1", "/host:CPU", "/host:CUPTI", "/device:"))
        titles: dict[int, str] = {}
        lines = [_write_line(draw, names, written, titles) for _ in range(draw.randint(0, 3))]
        planes.append(plane(number, title, lines, titles))
    path.write_bytes(space(*planes))
    return written


def _write_line(draw: Random, names: Names, written: Written, titles: dict[int, str]) -> bytes:
    start = draw.choice((0, 1, EPOCH, EPOCH, -5))
    events = []
    for _ in range(draw.choice((0, 1, 2, 8))):
        number, title = names.make()
        id = draw.choice((number, number + (1 << 40)))
        titles[id] = title
        offset, dur = draw.choice((*USUAL, *USUAL, *EDGES)), draw.choice((*USUAL, *USUAL, *EDGES))
        fields: list[tuple[int, Any]] = [(1, id), (2, offset), (3, dur)]
        draw.shuffle(fields)
        fields += [
            (4, stat(draw.choice(NAMED_STATS), _draw_value(draw))) for _ in range(draw.choice((0, 0, 1, 5)))
        ]
        is_sum = draw.random() < 0.05
        if is_sum:
            fields.append((5, draw.choice((0, 3))))
        if draw.random() < 0.1:
            fields.append((99, draw.choice((1, b"unknown", 2.5))))
        events.append(message(*fields))
        _count(written, number, 0 <= (dur + 500) // 1000 <= MAX_DURATION_NS and not is_sum)
    fields = [
        (1, draw.choice(EDGES)),
        (2, draw.choice(("Stream #14(Compute)", "XLA Ops", "python", "", "é"))),
    ]
    return message(*fields, (3, start), *((4, event) for event in events))


def _draw_value(draw: Random) -> Any:
    return draw.choice(
        (0, 7, (1 << 63) - 1, 2.5, "", "é" * 300, "grid:1,2,3 block:x regs:99999999999", "a/b/c:")
    )


def _count(written: Written, number: int, is_shown: bool) -> None:
    if is_shown:
        written.shown.add(number)
    else:
        written.others += 1


def write_perfetto(draw: Random, path: Path) -> Written:
    """Write slices, instants and counters on tracks, plain and deflated, with and without a time."""
    names, written = Names(draw), Written()
    packets = [message((60, message((1, 1), (3, message((1, 4242), (6, "python"))))), (10, 1))]
    for _ in range(draw.choice((1, 2, 5, 20))):
        number, title = names.make()
        track = draw.choice((1, 2, (1 << 64) - 1, 1 << 40)) if draw.random() < 0.5 else number + 100
        begin = draw.choice((0, 1, 1000, EPOCH))
        dur = draw.choice((0, 1, 1000, 1 << 40))
        kind = draw.choice(("slice", "slice", "slice", "begin", "end", "instant", "counter", "other"))
        is_timed = draw.random() < 0.9
        stamp = [(8, begin)] if is_timed else []
        if kind in ("slice", "begin", "end"):
            track = number + 1000  # of its own: what pairs with what is another test's
        noted = _draw_annotations(draw)
        fields: list[tuple[int, Any]] = [(9, {"instant": 3, "counter": 4, "other": 7}.get(kind, 1)), *noted]
        fields += [(30, draw.choice((0, 5, -1)))] * (kind == "counter")
        first = message(*fields, (11, track), (23, title))
        end = message((9, 2), (11, track))
        if kind != "end":
            packets.append(message(*stamp, (11, first), (10, 1)))
        if kind in ("slice", "end"):
            packets.append(message(*([(8, begin + dur)] if is_timed else []), (11, end), (10, 1)))
        _count(written, number, is_timed and kind not in ("end", "other"))
        if kind == "slice" and not is_timed:
            written.others += 1  # its end
    if draw.random() < 0.3:
        inner = message(*((1, packet) for packet in packets[1:]))
        packets = [packets[0], message((50, zlib.compress(inner, 0 if draw.random() < 0.3 else 9)))]
    path.write_bytes(message(*((1, packet) for packet in packets)))
    return written


def _draw_annotations(draw: Random) -> list[tuple[int, bytes]]:
    """Draw debug annotations: texts, numbers, and dictionaries nested within each other."""
    notes = []
    for _ in range(draw.choice((0, 0, 1, 3))):
        value = message((10, draw.choice(("corr_id", "x", "", "é"))), (4, draw.choice(EDGES)))
        for _ in range(draw.choice((0, 0, 1, 30, 300))):
            value = message((10, "d"), (11, value))
        notes.append((4, value))
    return notes


def write_nsys(draw: Random, path: Path) -> Written:
    """Write an export with kernels, calls and ranges, with columns of another type and times at the edges."""
    names, written = Names(draw), Written()
    rows: dict[str, list[list[object]]] = {nsys.KERNEL: [], nsys.NVTX: [], nsys.RUNTIME: [], "StringIds": []}
    for _ in range(draw.choice((1, 3, 10, 40))):
        number, title = names.make()
        start = draw.choice((*USUAL, EPOCH, -5))
        end = start + draw.choice((0, 1, 100, 1 << 40, 1 << 62))
        process = draw.choice((1, 2, 0xFFFFFF))
        is_timed = draw.random() < 0.95
        if draw.random() < 0.7:
            rows["StringIds"].append([number, title])
            row = nsys.kernel(start, end, draw.choice(EDGES), process, "", device=draw.choice((0, 1, 99)))
            row[6] = row[7] = number
            if not is_timed:
                row[draw.choice((0, 1))] = draw.choice(("x", "", b"\0", 1.5))
            rows[nsys.KERNEL].append(row)
        else:
            row = nsys.range_(start, end, title, process, draw.choice((0, 1, 0xFFFFFF)))
            if not is_timed:
                row[draw.choice((0, 1))] = draw.choice(("x", b"\0", 1.5))
            rows[nsys.NVTX].append(row)
        _count(written, number, is_timed and end - start <= MAX_DURATION_NS)
    for _ in range(draw.choice((0, 1, 5))):
        rows[nsys.RUNTIME].append(nsys.call(draw.choice(USUAL), draw.choice(EDGES), 1, 1))
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA page_size = {draw.choice((512, 4096, 65536))}")
    db.close()
    nsys.write(path, {table: content for table, content in rows.items() if content or draw.random() < 0.5})
    return written


def write_exported(draw: Random, path: Path) -> Written:
    """Write a run as Parquet, in row groups, compressions and types that another writer may choose."""
    names, written = Names(draw), Written()
    events = []
    for _ in range(draw.choice((1, 5, 50))):
        number, title = names.make()
        dur = draw.choice((*USUAL, 1 << 60, (1 << 63) - 1, -1, None))
        events.append({"ph": "X", "cat": "kernel", "name": title, "ts": 1, "dur": 1, "pid": 0, "tid": 7})
        _count(written, number, dur is None or 0 <= dur <= MAX_DURATION_NS)
        events[-1]["x"] = dur
    trace = path.with_suffix(".json")
    trace.write_text(json.dumps({"traceEvents": events}))
    [run] = load(trace, cache=False, capture=NO_CAPTURE)
    durations = pl.Series("dur", [event["x"] for event in events], dtype=pl.Int64)
    export([run.with_events(run.events.with_columns(durations))], path, overwrite=True)
    key, frame = pl.read_parquet_metadata(path), pl.read_parquet(path)
    frame = frame.cast({pl.Categorical: draw.choice((pl.String, pl.Categorical))})  # type: ignore[dict-item]
    frame = frame.select(draw.sample(frame.columns, len(frame.columns)))
    if draw.random() < 0.3:
        frame = frame.with_columns(foreign=pl.lit("é"))
    compression = draw.choice(("uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"))
    frame.write_parquet(
        path,
        compression=compression,  # type: ignore[arg-type]
        row_group_size=draw.choice((1, 7, 1000)),
        metadata={k: v for k, v in key.items() if not k.startswith("ARROW")},
    )
    return written


def write_archive(draw: Random, path: Path) -> Written:
    """Write a trace compressed in several parts; or within an archive, which nobody reads."""
    names, written = Names(draw), Written()
    records = [names.make() for _ in range(draw.choice((1, 10, 300)))]
    events = [{"ph": "X", "name": title, "ts": n, "dur": 1, "pid": 0, "tid": 0} for n, title in records]
    document = json.dumps({"traceEvents": events}).encode()
    form = draw.choice(("gz", "gz", "gz", "zip", "tar", "tar.gz"))
    written.is_refused = form != "gz"
    if form == "gz":
        cuts = sorted(draw.choices(range(len(document) + 1), k=draw.choice((0, 1, 5))))
        pieces = [document[a:b] for a, b in zip([0, *cuts], [*cuts, len(document)], strict=True)]
        path.write_bytes(b"".join(gzip.compress(piece, draw.choice((0, 1, 9))) for piece in pieces))
        written.shown |= {number for number, _ in records}
        return written
    count = draw.choice((1, 3))
    if form == "zip":
        with zipfile.ZipFile(path, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for n in range(count):
                archive.writestr(f"rank{n}.json", document)
        return written
    with tarfile.open(path, "w:gz" if form == "tar.gz" else "w") as tar:
        for n in range(count):
            info = tarfile.TarInfo(f"rank{n}.json")
            info.size = len(document)
            tar.addfile(info, io.BytesIO(document))
    return written


KINDS: Final[dict[str, tuple[str, Callable[[Random, Path], Written]]]] = {
    "xplane": ("a.xplane.pb", write_xplane),
    "perfetto": ("a.pftrace", write_perfetto),
    "nsys": ("a.sqlite", write_nsys),
    "exported": ("a.parquet", write_exported),
    "archive": ("a.bin", write_archive),
}


def check(path: Path, written: Written) -> str:
    """Load a file and find each record, shown or dropped; return how it ended, AssertionError at a fault."""
    try:
        runs = load(path, cache=False, capture=NO_CAPTURE)
    except UnreadableError as e:
        assert type(e) is UnreadableError, e
        assert written.is_refused or not written.shown, f"refused: {e}"
        return "refused"
    assert not written.is_refused
    names = [name or "" for run in runs for name in run.events["name"].cast(str).unique()]
    shown = {int(n) for name in names for n in TOKEN.findall(name)}
    assert written.shown <= shown, f"{sorted(written.shown - shown)} are not in the run"
    logs = {id(run.log): run.log for run in runs}.values()
    dropped = sum(log.dropped for log in logs)
    lost = written.others - len(shown - written.shown)
    assert dropped >= lost, f"{lost} are lost, {dropped} are counted"
    return "read"


def attack(inputs: int, seed: int, first: int, folder: Path, kinds: list[str]) -> Counter[str]:
    """Check files; return how they ended. A fault is raised with its number, and leaves its file."""
    counts = Counter[str]()
    for number in range(first, first + inputs):
        kind = kinds[number % len(kinds)]
        name, write = KINDS[kind]
        path = folder / name
        path.unlink(missing_ok=True)
        written = write(Random(f"{seed}:{number}"), path)
        try:
            with limit_time():
                counts[f"{kind} {check(path, written)}"] += 1
        except BaseException as e:
            e.add_note(f"input {kind} {seed}:{number} at {path}")
            raise
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    args = parser.parse_args()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="grammar-"))
    counts = attack(args.inputs, args.seed, args.first, folder, args.kind or list(KINDS))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    assert peak < LARGEST_BYTES, f"{peak:,} bytes"
    print(f"{args.inputs:,} files in {time.monotonic() - began:.0f} s, no fault: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
