"""Append event lines to a file, cheaply enough to stay on; write failures are counted, never raised."""

from __future__ import annotations  # imported by users' programs, from Python 3.8 on

import errno
import json
import os
import secrets
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from operator import sub
from typing import TYPE_CHECKING, Any, Final

from .parts import PartRotation
from .schema import SCHEMA_VERSION, encode_json, encode_text, seal_json, seal_record

WRITE_INTERVAL_NS: Final = 100_000_000  # between two writes: the most that a kill -9 loses
COST_INTERVAL_NS: Final = 1_000_000_000
PART_CHECK_INTERVAL_NS: Final = 200_000_000
MAX_WAITING_BYTES: Final = 8 << 20  # held while the disk is full
ROOM_BYTES: Final = 512  # that the end line needs at most
TAIL_BYTES: Final = 1 << 16
REMOVED: Final = "the file was removed"


def _load_clocks() -> Any:
    """Return the module `time` as Python has it: the program may have replaced its functions."""
    if sys.version_info < (3, 9):  # noqa: UP036 - there is one only: its functions would be set back
        return time
    spec: Any = BuiltinImporter.find_spec("time")
    clocks = module_from_spec(spec)
    spec.loader.exec_module(clocks)
    return clocks


_clocks: Final = _load_clocks()
now: Final[Callable[[], int]] = _clocks.perf_counter_ns


def read_clock_pair() -> tuple[int, int]:
    """Return one instant on the run's clock and in Unix time, from the closest of five readings."""
    readings = []
    for _ in range(5):
        before, unix, after = now(), _clocks.time_ns(), now()
        readings.append((after - before, (before + after) // 2, unix))
    _, mono, unix = min(readings)
    return mono, unix


if TYPE_CHECKING:
    Line = tuple[bytes, int | None]  # with its number of events; None: it must not be dropped


class LineEncoder:
    """Encodes the lines of steps for one writer."""

    def __init__(self, writer_fields: Mapping[str, int]) -> None:
        self._writer_json = "".join([f',"{name}":{number}' for name, number in writer_fields.items()])
        self._templates: dict[tuple[int, ...], str] = {}  # of lists, by their ops

    def encode_columns(
        self,
        head: str,
        ops: Sequence[int],
        starts: Sequence[int],
        durations: Sequence[int],
        count: Sequence[int] | None = None,
    ) -> bytes:
        """Return the line of `columns`, with `head` as the JSON of the fields that all its rows share."""
        counts = f',"count":[{_format_numbers(count)}]' if count else ""
        distances = map(sub, starts, (starts[0], *starts))
        lists = self._build_lists_template(ops) % (*distances, *durations) + counts
        return seal_json(f'{{"kind":"columns"{head}{self._writer_json},"t":{starts[0]},{lists}}}'.encode())

    def encode_step(
        self,
        rows: Sequence[int],
        *,
        step: int,
        start: int,
        duration: int,
        phase: str | None,
        name: str,
        track: str | None = None,
        tokens: int | None = None,
        batch: int | None = None,
        context: int | None = None,
        shape: str | None = None,
    ) -> list[Line]:
        """Return the lines of a step and of its rows (op, start and duration of each, flat).

        They are not made of dictionaries, because a recorder does this for every step of a program.
        """
        lines: list[Line] = []
        ops = rows[::3]
        fields = f',"step":{step}' if phase is None else f',"step":{step},"phase":{encode_text(phase)}'
        if ops:
            lines.append((self.encode_columns(fields, ops, rows[1::3], rows[2::3]), len(ops)))
        if tokens is not None:
            fields += f',"tokens":{tokens}'
        if batch is not None:
            fields += f',"batch":{batch}'
        if context is not None:
            fields += f',"context":{context}'
        if track is not None:
            fields += f',"track":{encode_text(track)}'
        if shape is not None:
            fields += f',"shape":{encode_text(shape)}'
        head = f'{{"kind":"step","name":{encode_text(name)},"t":{start},"dur":{duration}'
        lines.append((seal_json(f"{head}{fields}{self._writer_json}}}".encode()), 1))
        return lines

    def _build_lists_template(self, ops: Sequence[int]) -> str:
        """Return the lists of a step as JSON, with %d for times; most steps repeat the last ops."""
        key = tuple(ops)
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= 64:
                self._templates.clear()
            times = ("%d," * len(key))[:-1]
            template = f'"op":[{_format_numbers(key)}],"dt":[{times}],"dur":[{times}]'
            self._templates[key] = template
        return template


class Emitter:
    """Writer of one file; several may share a file, because every write appends whole lines.

    Call `run`, then `plan`, then `columns` and `step` for every step; `end` writes the totals.
    All times are `time.perf_counter_ns()`. Lines reach the file on `flush`, or with the first call 100 ms
    after the last write. A full disk drops events, which are counted, but raises nothing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rank: int | None = None,
        writer: int | None = None,
        reports_cost: bool = True,
    ) -> None:
        """`writer` identifies a further process of the run; `reports_cost` is off outside that process."""
        self._reports_cost = reports_cost
        self.lost = 0  # events that were never written
        self.cost_ns = 0  # time spent in this class; a recorder adds its own
        # O_NONBLOCK: a pipe without a reader is refused, a slow one drops lines; neither blocks the program
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._parts = PartRotation(path, rotates=not rank and writer is None and reports_cost)
        self._fd = self._parts.open_file(flags)
        writer_fields = {"rank": rank, "writer": writer}
        self._writer_fields = {name: number for name, number in writer_fields.items() if number is not None}
        self.encoder = LineEncoder(self._writer_fields)
        self._lock = threading.RLock()
        self._lines: list[Line] = []
        status = os.fstat(self._fd)
        self._ends_torn = status.st_size > 0  # whether the file may end within a line
        self._has_name = stat.S_ISREG(status.st_mode) and status.st_nlink > 0
        self._is_removed = False
        self._event_count, self._reason = 0, ""
        self._reported_lost = 0  # the part of `lost` that the file reports
        self._torn_at = 0  # size of the file after the last write that failed
        self._has_begun_run = False
        self._written_at = self._cost_written_at = now()
        self._part_checked_at = self._written_at  # last check for a new part
        _EMITTERS.add(self)

    def run(self, name: str, meta: Mapping[str, Any] | None = None, *, id: str | None = None) -> None:
        """Start a run, or join the one with this id."""
        fields = {"id": id or secrets.token_hex(8), "name": name, "meta": meta or {}}
        record = {"kind": "run", "schema": SCHEMA_VERSION, **fields, "clock": read_clock_pair()}
        self._has_begun_run = True
        self._queue_lines([(self._parts.remember_run({**record, **self._writer_fields}), None)])
        self.flush()

    def plan(self, ops: Iterable[Mapping[str, Any]]) -> None:
        """Write ops with their ids: `id`, `name`, and other fields that are the same in every step."""
        record = {"kind": "plan", "ops": [dict(op) for op in ops], **self._writer_fields}
        self._queue_lines([(self._parts.remember_plan(seal_record(record)), None)])

    def columns(
        self,
        ops: Sequence[int],
        starts: Sequence[int],
        durations: Sequence[int],
        *,
        step: int | None = None,
        phase: str | None = None,
        context: int | None = None,
        count: Sequence[int] | None = None,
    ) -> None:
        """Write the events of one step as columns, in order of their starts."""
        if ops:
            began = now()
            fields = {"step": step, "phase": phase, "context": context}
            head = encode_json({name: value for name, value in fields.items() if value is not None})[1:-1]
            line = self.encoder.encode_columns(f",{head}" if head else "", ops, starts, durations, count)
            self._queue_lines([(line, len(ops))], began)

    def steps(self, lines: Sequence[Line], began: int) -> None:
        """Write steps and their rows, which the encoder has made lines of since `began`."""
        self._queue_lines(lines, began)

    def step(
        self,
        step: int,
        start: int,
        duration: int,
        *,
        phase: str = "decode",
        name: str | None = None,
        tokens: int | None = None,
        context: int | None = None,
        batch: int | None = None,
    ) -> None:
        """Write a step: its wall time and what it produced."""
        outputs = {"tokens": tokens, "context": context, "batch": batch}
        self.event("step", name or phase, t=start, dur=duration, step=step, phase=phase, **outputs)

    def event(self, kind: str, name: str, **columns: Any) -> None:
        """Write one event with any columns of the schema; None values are omitted."""
        began = now()
        fields = {key: value for key, value in columns.items() if value is not None}
        line = seal_record({"kind": kind, "name": name, **fields, **self._writer_fields})
        self._queue_lines([(line, 0 if kind in ("counter", "memory", "mark") else 1)], began)

    def counter(self, name: str, value: float, unit: str = "", *, track: str | None = None) -> None:
        """Write a measured value with the current time."""
        self.event("counter", name, t=now(), value=value, unit=unit or None, track=track)

    def mark(self, text: str, path: str = "note") -> None:
        """Write a line of text with the current time; `path` is its class: note, log, selection, metric."""
        self.event("mark", text, t=now(), path=path)

    @property
    def unwritten(self) -> str:
        """Why events are missing from the file, as a sentence; empty while every write succeeds."""
        if self._is_removed:
            return f"{self._event_count:,} events could not be written: {REMOVED}"
        with self._lock:
            count = self.lost + sum(events or 0 for _, events in self._lines)
        return f"{count:,} events could not be written: {self._reason}" if self._reason and count else ""

    def flush(self) -> None:
        """Write all waiting lines."""
        with self._lock:
            self._write_lines(now())

    def close(self) -> None:
        """Write all waiting lines and close the file without an end line, for a second writer of a run."""
        with self._lock:
            self._write_lines(now())
            if self._fd >= 0:
                self._check_name()
                os.close(self._fd)
                self._fd = -1

    def end(self) -> None:
        """Write the end line (events written and lost) and close the file."""
        with self._lock:
            if self._fd < 0:
                return
            self._write_cost(now())
            lost = {"lost": self.lost, "reason": self._reason} if self.lost else {}
            written = self._event_count - self.lost
            record = {"kind": "end", "events": written, **lost, **self._writer_fields}
            self._lines.append((seal_record(record), None))
            self._write_lines(now())
            if self._lines:
                self._end_on_full_disk(record)
            self.close()

    def _end_on_full_disk(self, record: Mapping[str, Any]) -> None:
        """Count what waits as lost, and write the end line in place of the last lines."""
        self.lost += sum(events or 0 for _, events in self._lines)
        self._lines, self._reason = [], self._reason or os.strerror(errno.ENOSPC).lower()
        if not self._has_name:  # a device or a pipe, which has no last lines
            return
        with suppress(OSError, ValueError):
            lost = {"lost": self.lost, "reason": self._reason}
            fields = {**record, "events": self._event_count - self.lost, **lost}
            self.lost += replace_last_lines(self._fd, self._torn_at, fields)

    def _queue_lines(self, lines: Sequence[Line], began: int | None = None) -> None:
        """Queue lines, each with its number of events, and count the time since `began` as cost."""
        with self._lock:
            if self._fd < 0:
                return
            self._lines += lines
            for _, events in lines:
                self._event_count += events or 0
            at = now()
            if at - self._written_at >= WRITE_INTERVAL_NS:
                self._write_cost(at)
                self._write_lines(at)
                at = now()
            self.cost_ns += at - (began or at)

    def _write_cost(self, at: int) -> None:
        """Write once a second the share of the time spent recording."""
        if not (self._has_begun_run and self._reports_cost) or at - self._cost_written_at < COST_INTERVAL_NS:
            return
        share = 100 * self.cost_ns / (at - self._cost_written_at)
        self._cost_written_at, self.cost_ns = at, 0
        self.counter("capture cost", round(share, 4), "%")

    def _write_lines(self, at: int, *, again: bool = True) -> None:
        """Write waiting lines; those that a full disk refuses wait. Partly written: `again` reports why."""
        self._written_at = at
        if self._fd >= 0:  # else it was closed by us; a program may have closed it, as daemons do
            self._fd = self._parts.regain_file(self._fd)
        lines = b"".join(line for line, _ in self._lines) + self._build_loss_line(at)
        if not lines or self._fd < 0:
            return
        data = b"\n" + lines if self._ends_torn else lines
        try:
            done = os.write(self._fd, data)
        except OSError as e:
            done, self._reason = 0, os.strerror(e.errno or 0).lower()
        if done == len(data):
            self._lines.clear()
            self._ends_torn, self._reported_lost = False, self.lost
            self._switch_part(at)
        else:
            done = max(0, done - (len(data) - len(lines)))
            self._ends_torn = self._ends_torn or done > 0
            self._torn_at = os.fstat(self._fd).st_size
            self._keep_unwritten(done)
            if done and again:
                self._write_lines(at, again=False)

    def _switch_part(self, at: int) -> None:
        """Rotate a full file, or follow another writer that has rotated it; checked now and then."""
        if at - self._part_checked_at < PART_CHECK_INTERVAL_NS:
            return
        self._part_checked_at = at
        self._check_name()
        fd = self._parts.choose_file(self._fd)
        if fd != self._fd:
            os.close(self._fd)
            self._fd = fd

    def _check_name(self) -> None:
        """Notice that the file was removed, so that what is written goes nowhere."""
        self._is_removed = self._is_removed or (self._has_name and not os.fstat(self._fd).st_nlink)

    def _keep_unwritten(self, done: int) -> None:
        """Forget the lines that a failed write wrote completely; drop events if too many bytes wait."""
        while self._lines and done >= len(self._lines[0][0]) - 1:  # the next write supplies the newline
            done -= len(self._lines.pop(0)[0])
        if sum(len(line) for line, _ in self._lines) > MAX_WAITING_BYTES:
            self.lost += sum(events or 0 for _, events in self._lines)
            self._lines = [(line, events) for line, events in self._lines if events is None]

    def _build_loss_line(self, at: int) -> bytes:
        """Return the line that reports new losses, or nothing if there are none."""
        if self.lost == self._reported_lost:
            return b""
        text = f"{self.lost - self._reported_lost} events could not be written: {self._reason}"
        return seal_record({"kind": "mark", "name": text, "t": at, "path": "log", **self._writer_fields})

    def _drop_file(self) -> None:
        """Close the file without writing, in a forked child: the lines belong to the parent."""
        self._lock = threading.RLock()
        self._lines = []
        if self._parts.is_own(self._fd):
            os.close(self._fd)
        self._fd = -1


def replace_last_lines(fd: int, size: int, record: Mapping[str, Any]) -> int:
    """Replace the last lines of a file of this size by a short record, and return the events in them.

    Their number is moved from `events` to `lost` of the record. Nothing happens if another writer continued
    the file. Raise OSError if it is not readable (elsewhere than on Linux).
    """
    with open(f"/proc/self/fd/{fd}", "rb") as file:  # noqa: PTH123 - the file is open for writing only
        if file.seek(0, os.SEEK_END) != size:
            return 0
        begin = file.seek(max(0, size - TAIL_BYTES))
        tail = file.read()
    cut = tail.rfind(b"\n", 0, max(0, len(tail) - ROOM_BYTES)) + 1
    if not cut:
        return 0
    lost = sum(map(_count_events, tail[cut:].split(b"\n")))
    os.ftruncate(fd, begin + cut)
    counts = {"events": record["events"] - lost, "lost": record["lost"] + lost}
    os.write(fd, seal_record({**record, **counts}))
    return lost


def _count_events(line: bytes) -> int:
    """Count the events in a line of a recording; none in a torn one, which still waits to be written."""
    try:
        fields = json.loads(line)
    except ValueError:
        return 0
    ops = fields.get("op")
    if fields.get("kind") in ("run", "plan", "end", "counter", "memory", "mark"):
        return 0
    return len(ops) if isinstance(ops, list) else 1


def _format_numbers(values: Sequence[int]) -> str:
    return ("%d," * len(values))[:-1] % tuple(values)


_EMITTERS: Final[weakref.WeakSet[Emitter]] = weakref.WeakSet()


def has_open_emitter() -> bool:
    """Return whether this process writes events already.

    Checks all copies of this module: as part of `capture`, and under a private package name.
    """
    path = os.path.realpath(__file__)
    modules = [m for name, m in list(sys.modules.items()) if name.endswith(".native.emit")]
    copies = [m for m in modules if os.path.realpath(getattr(m, "__file__", None) or "") == path]
    return any(emitter._fd >= 0 for module in copies for emitter in module._EMITTERS)


def _drop_files_after_fork() -> None:
    for emitter in list(_EMITTERS):
        emitter._drop_file()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_files_after_fork)
