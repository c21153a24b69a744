"""Valid but extreme Chrome traces, of which the grammar knows how many records it wrote.

python -m tests.capture.loaders.chrome_grammar [--inputs 100000] [--seed 1] [--first 0]

Both readers read each document: they must agree, with each other and with the grammar's count. Every tenth
document becomes a run, in which each record must be found or be counted as dropped. The first fault ends it.
"""

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

from polars.testing import assert_frame_equal

from capture.loaders._scan import load_scanner
from capture.loaders.chrome import compiled_reader, lenient_reader
from capture.loaders.chrome.trace_model import RefusedError, Trace
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.run import MAX_DURATION_NS
from capture.source import Source

CATEGORIES: Final = (
    "kernel", "Kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "Operator", "cuda_runtime", "cuda_driver",
    "user_annotation", "gpu_user_annotation", "python_function", "overhead", "Trace", "", "é", "a,b", None,
)  # fmt: skip
NAMES: Final = (
    "k", "void f<float[4]>(int)", "aten::mm", "aten::conv2d", "nn.Module: Layer_3", "decode step 7", "", "{[",
    "\u00e9\u4e2d\U0001f600", "\u202e", "a\\b", '"q"', "line\nbreak", "tab\t", "\x7f", "/", " / ",
    "x" * 5_000, "x::" * 700, "ProfilerStep#3", "cudaLaunchKernel", "Memset (Device)",
    "attention", "end: k", "[memory]",
)  # fmt: skip
THREADS: Final = (0, 1, -1, 7, 2**31, 2**63, 1.5, "1", "thread", "", "é", '"', "stream 7", True, None)
TIMES: Final = (
    "0", "1", "12.5", "-3", "-0.25", "1e3", "1.5E+2", "25e-1", "0.0005", "0.0015", "1.00050000000001",
    "1669329643132548.123", "9223372036854775", "99999999999999999", "1e30", "-1e30", "0e0",
)  # fmt: skip
BAD_TIMES: Final = ('"N/A"', '""', "[]", "{}", "true", '"0x10"', '"1 2"')
DEEP: Final = (1, 3, 100, 127)
TOKEN: Final = re.compile(r"#(\d+)#")
HEADER: Final = (
    ("schemaVersion", 1), ("displayTimeUnit", "ms"), ("deviceProperties", [{"id": 0, "name": "H100"}]),
    ("distributedInfo", {"rank": 3, "world_size": 8}), ("otherData", {"a": [None]}), ("é", "é"),
)  # fmt: skip
LARGEST_SECONDS: Final = 20  # of the processor; beside other work a document may wait much longer
LONGEST_WAIT_SECONDS: Final = 300


@dataclass
class Written:
    """What a document holds, by the grammar's own count."""

    rows: int = 0  # complete events with a time
    without_time: int = 0  # complete events whose time is no number
    senseless: int = 0  # of the rows, those whose duration no run keeps: negative, or above 73 years
    others: int = 0  # other events with a phase, without flow arrows
    pairs: int = 0  # begins with their ends
    unpaired: int = 0
    other_phases: int = 0  # of which nothing is shown
    named: set[int] = field(default_factory=set)  # numbers in the names of records that a run must show


class Grammar:
    """Writes one document after the other from a source of chance."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.written = Written()
        self._number = 0

    def write(self) -> bytes:
        """Return a document; `written` says what it holds."""
        draw = self.draw
        lists = [self._write_list() for _ in range(1 if draw.random() < 0.95 else draw.randint(2, 3))]
        if len(lists) == 1 and draw.random() < 0.25:
            return (self._blank() + lists[0] + self._blank()).encode()
        members = [f"{json.dumps(key)}:{json.dumps(value)}" for key, value in HEADER if draw.random() < 0.3]
        for text in lists:
            members.insert(
                draw.randint(0, len(members)), f'"traceEvents"{self._blank()}:{self._blank()}{text}'
            )
        return ("{" + f"{self._blank()},{self._blank()}".join(members) + "}").encode()

    def _write_list(self) -> str:
        events: list[str] = []
        for _ in range(self.draw.choice((1, 1, 2, 3, 5, 12))):
            events += self._write_record()
        return f"[{self._blank()}" + f"{self._blank()},{self._blank()}".join(events) + f"{self._blank()}]"

    def _write_record(self) -> list[str]:
        """Return one record: an event, or a begin and its end."""
        draw, written = self.draw, self.written
        self._number += 1
        title = f"#{self._number}#{draw.choice(NAMES)}"
        phase = draw.choice("XXXXXXXXBbiICstfMEPON")
        members = self._draw_members(title, phase)
        if phase == "X":
            return self._write_complete(members)
        if phase in "stf":
            return [self._write_event(members)]
        written.others += 1
        if phase in "Bb":
            members |= {"ts": "10", "pid": f'"p{self._number}"'} | (
                {"id": str(self._number)} if phase == "b" else {}
            )
            if draw.random() < 0.2:
                written.unpaired += 1
                return [self._write_event(members)]
            written.others += 1
            written.pairs += 1
            written.named.add(self._number)
            end = members | {"ph": f'"{"Ee"[phase == "b"]}"', "ts": draw.choice(("10", "12.5", '"11"'))}
            return [self._write_event(members), self._write_event(end)]
        if phase == "E":
            written.unpaired += 1
            members |= {"ts": "10", "pid": f'"p{self._number}"'}
        elif phase == "C":
            written.named.add(self._number)
            members["args"] = draw.choice(('{"v":1}', '{"v":1e5,"w":-2}', '{"v":1,"x":"no number"}'))
        elif phase in "iI":
            written.named.add(self._number)
        elif phase in "PON":
            written.other_phases += 1
        return [self._write_event(members)]

    def _write_complete(self, members: dict[str, str]) -> list[str]:
        draw, written = self.draw, self.written
        bad = draw.choice(("ts", "dur")) if draw.random() < 0.04 else ""
        if bad:
            members[bad] = draw.choice(BAD_TIMES)
            written.without_time += 1
        else:
            if draw.random() < 0.05:
                del members["dur"]
            written.rows += 1
            if _is_sensible(members.get("dur")):
                written.named.add(self._number)
            else:
                written.senseless += 1
        return [self._write_event(members)]

    def _draw_members(self, title: str, phase: str) -> dict[str, str]:
        draw = self.draw
        members = {
            "ph": f'"{phase}"',
            "name": json.dumps(title, ensure_ascii=draw.random() < 0.5),
            "ts": self._draw_time(),
        }
        if draw.random() < 0.8:
            members["cat"] = json.dumps(draw.choice(CATEGORIES), ensure_ascii=False)
        if draw.random() < 0.9:
            members |= {key: json.dumps(draw.choice(THREADS)) for key in ("pid", "tid")}
        if phase == "X":
            members["dur"] = self._draw_time()
        if draw.random() < 0.6:
            members["args"] = self._draw_arguments()
        if draw.random() < 0.2:
            members["id"] = draw.choice(("1", '"0x1f"', "null", "[1]"))
        if draw.random() < 0.2:
            members[draw.choice(("bp", "s", "tts", "cname", "é", "", "Ph"))] = self._draw_value(2)
        return members

    def _draw_time(self) -> str:
        text = self.draw.choice(TIMES)
        return f'"{text}"' if self.draw.random() < 0.1 else text

    def _draw_arguments(self) -> str:
        draw = self.draw
        known = (
            ("correlation", ("1", "17", "-1", "1.5", '"3"', "9" * 18, "9" * 19, "null")),
            ("External id", ("1", "2", "18446744073709551615", '"x"')),
            ("grid", ("[64,8,1]", "[1]", "[]", '"64"', "[1.5,2,3]", "null")),
            ("block", ("[32,1,1]", "[-1,1,1]", "[[1]]", "7")),
            ("registers per thread", ("32", "1e3", '"32"', "4294967296")),
            ("shared memory", ("0", "1024", "-1", "null")),
            ("est. achieved occupancy %", ("50", "12.5", "1e400", '"full"')),
            ("Input Dims", ("[[2,3],[3,4]]", "[[],[]]", '"no"', "[[[1,2],[3]]]", "null")),
            ("Input type", ('["float","float"]', "[]", "[null]")),
            ("Concrete Inputs", ('["","1"]', "[]", "[[1]]")),
            ("Sequence number", ("0", "41", "-1", '"3"', "null", "{}")),
            ("stream", ("7", "[7]")),
        )
        items = [f'"{key}":{draw.choice(values)}' for key, values in known if draw.random() < 0.25]
        if draw.random() < 0.3:
            items.append(f'"{draw.choice(("x", "y", "device"))}":{self._draw_value(draw.choice(DEEP))}')
        if items and draw.random() < 0.05:
            items.append(items[0].partition(":")[0] + ":null")  # the same key twice
        draw.shuffle(items)
        return "{" + ",".join(items) + "}"

    def _draw_value(self, depth: int) -> str:
        """Return a value nested so deep, in lists and objects."""
        opened = [self.draw.choice(("[", '{"ts":', '{"a":')) for _ in range(depth - 1)]
        closed = ["]" if mark == "[" else "}" for mark in reversed(opened)]
        return (
            "".join(opened)
            + self.draw.choice(("1", "null", '"\\u00e9"', "[]", "{}", "-1.5e-7"))
            + "".join(closed)
        )

    def _write_event(self, members: dict[str, str]) -> str:
        items = [f'"{key}":{value}' for key, value in members.items()]
        if self.draw.random() < 0.02:
            items.append(items[0])  # the same key twice, with the same value
        if self.draw.random() < 0.5:
            self.draw.shuffle(items)
        return "{" + f"{self._blank()},".join(items) + "}"

    def _blank(self) -> str:
        return self.draw.choice(("", "", "", " ", "\n", "\r\n\t ", " " * 50))


def _is_sensible(duration: str | None) -> bool:
    """Whether a run keeps a duration in µs, as written; a missing one, or one beyond 64 bits, is null."""
    ns = Decimal((duration or "0").strip('"')) * 1000
    return 0 <= ns <= MAX_DURATION_NS or abs(ns) >= 2**63


def check(path: Path, written: Written, *, as_run: bool) -> str:
    """Read a document with both readers and compare; return which read it; AssertionError at a fault."""
    slow_source = Source.from_path(path)
    slow = lenient_reader.read_document(slow_source)
    _check_count(slow, slow_source, written)
    fast_source = Source.from_path(path)
    try:
        fast = compiled_reader.read_document(fast_source) if load_scanner() else None
    except RefusedError:
        fast = None
    if fast is not None:
        _check_count(fast, fast_source, written)
        _compare(fast, slow)
    if as_run:
        for trace, source in ((fast, fast_source), (slow, slow_source)):
            if trace is not None:
                _check_run(trace, source, written)
    return "both" if fast else "lenient only"


def _check_count(trace: Trace, source: Source, written: Written) -> None:
    log = source.log
    steps = sum(event.ph == "X" for event in trace.others)
    counted = (trace.complete.rows.height + steps, len(trace.others) - steps, log.dropped, log.read)
    total = written.rows + written.without_time + written.others
    assert counted == (written.rows, written.others, written.without_time, total), (counted, written)


def _compare(fast: Trace, slow: Trace) -> None:
    assert fast.header == slow.header
    assert fast.others == slow.others
    columns = ["t", "dur", "correlation", "external_id"]
    assert_frame_equal(fast.complete.rows.select(columns), slow.complete.rows.select(columns))
    for name in ("cat", "name", "thread"):
        assert fast.complete.expand_label(name).to_list() == slow.complete.expand_label(name).to_list()
    arguments = [
        [text and json.loads(text) for text in trace.complete.rows["args"].cast(str)]
        for trace in (fast, slow)
    ]
    assert arguments[0] == arguments[1], arguments


def _check_run(trace: Trace, source: Source, written: Written) -> None:
    run = convert_to_run(trace, source)
    shown = {int(n) for name in run.events["name"].cast(str) for n in TOKEN.findall(name or "")}
    assert written.named <= shown, f"{sorted(written.named - shown)} are not in the run"
    lost = written.without_time + written.senseless + written.unpaired + written.other_phases
    assert run.log.dropped == lost, (run.log.dropped, lost)


def attack(inputs: int, seed: int, first: int, folder: Path) -> Counter[str]:
    """Check documents; return how many each reader read. A fault is raised with its number."""
    path, counts = folder / "trace.json", Counter[str]()
    for number in range(first, first + inputs):
        grammar = Grammar(Random(f"{seed}:{number}"))
        document = grammar.write()
        path.write_bytes(document)
        try:
            with limit_time():
                counts[check(path, grammar.written, as_run=number % 10 == 0)] += 1
        except BaseException as e:
            e.add_note(f"input {seed}:{number}: {document[:3000]!r}")
            raise
        counts["records"] += grammar._number
    return counts


@contextmanager
def limit_time() -> Iterator[None]:
    """Raise TimeoutError if the block takes too long."""
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _stop)
    signal.setitimer(signal.ITIMER_PROF, LARGEST_SECONDS)
    signal.alarm(LONGEST_WAIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def _stop(number: int, _: Any) -> None:
    raise TimeoutError(f"no answer in time ({signal.Signals(number).name})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts = attack(args.inputs, args.seed, args.first, Path(folder))
    print(f"{args.inputs:,} documents in {time.monotonic() - began:.0f} s, no fault: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
