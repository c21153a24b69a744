"""Emitter: appends event lines to a file, cheaply enough to stay on; a full disk raises nothing."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import os
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from operator import sub
from typing import Any, Final

from .parts import Parts
from .schema import SCHEMA, flat_json, seal, sealed

EVERY_NS: Final = 100_000_000  # between two writes: as much is lost by a kill -9 at most
COST_EVERY_NS: Final = 1_000_000_000
PART_EVERY_NS: Final = 200_000_000
KEPT: Final = 8 << 20  # bytes that are held while the disk is full

now: Final = time.perf_counter_ns


def clock_pair() -> tuple[int, int]:
    """Return one instant on the run's clock and in Unix time, by the closest of five readings."""
    readings = []
    for _ in range(5):
        before, unix, after = now(), time.time_ns(), now()
        readings.append((after - before, (before + after) // 2, unix))
    _, mono, unix = min(readings)
    return mono, unix


class Emitter:
    """One writer of one file. Several may share a file: every write is whole lines at its end.

    Call `run`, then `plan`, then `columns` and `step` for every step; `end` says the totals.
    All times are `time.perf_counter_ns()`. Lines reach the file at the latest 100 ms after the call
    that follows them, or on `flush`. A disk that is full costs events, which are counted, but never
    an exception. Where TRACETUI_PART_SIZE says so, a file that is full becomes a part, and another is begun.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rank: int | None = None,
        writer: int | None = None,
        tells_cost: bool = True,
    ) -> None:
        """`rank` is that of a launch; `writer` tells apart other processes that share a run; one that stands
        beside what it records tells no cost of its own.
        """
        self._tells_cost = tells_cost
        self.lost = 0  # events that could not be written
        self.cost_ns = 0  # time spent in here; a recorder adds its own
        # a pipe holds no program up: one without a reader is refused, a slow one costs lines as a full disk
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._fd = os.open(path, flags, 0o600)
        stated = {"rank": rank, "writer": writer}
        self._rank = {name: number for name, number in stated.items() if number is not None}
        self._lock = threading.RLock()
        self._lines: list[tuple[bytes, int | None]] = []  # a line and its events; none for a vital line
        self._torn = os.fstat(self._fd).st_size > 0  # the file may end within a line
        self._events, self._reported, self._reason = 0, 0, ""  # _reported: of `lost`, what the file says
        self._began = False  # whether this writer began a run
        self._written = self._costed = now()
        self._parts = Parts(path, turns=not rank and writer is None and tells_cost)
        self._looked = self._written  # when it was last looked whether another part is written
        self._ops_texts: dict[tuple[int, ...], str] = {}
        _EMITTERS.add(self)

    def run(self, name: str, meta: Mapping[str, Any] | None = None, *, id: str | None = None) -> None:
        """Start a run, or join the one that has this id."""
        head = {"id": id or secrets.token_hex(8), "name": name, "meta": meta or {}, "clock": clock_pair()}
        self._began = True
        self._put(self._parts.begin({"kind": "run", "schema": SCHEMA, **head, **self._rank}), None)
        self.flush()

    def plan(self, ops: Iterable[Mapping[str, Any]]) -> None:
        """Write ops by their numbers: `id` and `name`, and whatever else no step changes."""
        self._put(
            self._parts.plan(seal({"kind": "plan", "ops": [dict(op) for op in ops], **self._rank})), None
        )

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
        """Write the events of one step, as columns in the order of their starts."""
        if not ops:
            return
        began = now()
        facts = {"step": step, "phase": phase, "context": context, **self._rank}
        stated = {name: value for name, value in facts.items() if value is not None}
        counts = f',"count":[{_numbers(count)}]' if count else ""
        head = flat_json({"kind": "columns", **stated, "t": starts[0]})[:-1]
        line = (
            f"{head},{self._ops_json(ops)}"
            f'"dt":[{_numbers(list(map(sub, starts, (starts[0], *starts))))}],'
            f'"dur":[{_numbers(durations)}]{counts}}}'
        )
        self._put(sealed(line.encode()), len(ops), began)

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
        """Write a step as a whole: its wall time and what it produced."""
        facts = {"tokens": tokens, "context": context, "batch": batch}
        self.event("step", name or phase, t=start, dur=duration, step=step, phase=phase, **facts)

    def event(self, kind: str, name: str, **columns: Any) -> None:
        """Write one event with any columns of the schema; those that are None are left out."""
        began = now()
        stated = {key: value for key, value in columns.items() if value is not None}
        line = seal({"kind": kind, "name": name, **stated, **self._rank})
        self._put(line, 0 if kind in ("counter", "memory", "mark") else 1, began)

    def counter(self, name: str, value: float, unit: str = "", *, track: str | None = None) -> None:
        """Write a measured value, now."""
        self.event("counter", name, t=now(), value=value, unit=unit or None, track=track)

    def mark(self, text: str, path: str = "note") -> None:
        """Write a line of text, now; `path` is its class: note, log, selection, metric."""
        self.event("mark", text, t=now(), path=path)

    def line(self, line: bytes, events: int) -> None:
        """Write a line that is sealed already, with so many events in it."""
        self._put(line, events)

    @property
    def unwritten(self) -> str:
        """What is not in the file for now, and why, as a sentence; empty while every write succeeds."""
        if not self._reason:
            return ""
        with self._lock:
            count = self.lost + sum(events or 0 for _, events in self._lines)
        return f"{count:,} events could not be written: {self._reason}" if count else ""

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            self._write(now())

    def close(self) -> None:
        """Write what waits and close the file, without an end line: for a writer that only adds to a run."""
        with self._lock:
            if self._fd >= 0:
                self._write(now())
                os.close(self._fd)
                self._fd = -1

    def end(self) -> None:
        """Write the end line, how many events were written and how many could not be, and close the file."""
        with self._lock:
            if self._fd < 0:
                return
            self._write_cost(now())
            lost = {"lost": self.lost, "reason": self._reason} if self.lost else {}
            self._lines.append((seal({"kind": "end", "events": self._events, **lost, **self._rank}), None))
            self.close()

    def _ops_json(self, ops: Sequence[int]) -> str:
        """Return the ops of a step as JSON, kept because most steps have the ops of the one before."""
        key = tuple(ops)
        if key not in self._ops_texts:
            if len(self._ops_texts) >= 64:
                self._ops_texts.clear()
            self._ops_texts[key] = f'"op":[{_numbers(key)}],'
        return self._ops_texts[key]

    def _put(self, line: bytes, events: int | None, began: int | None = None) -> None:
        with self._lock:
            if self._fd < 0:
                return
            self._lines.append((line, events))
            self._events += events or 0
            at = now()
            if at - self._written >= EVERY_NS:
                self._write_cost(at)
                self._write(at)
                at = now()
            self.cost_ns += at - (began or at)

    def _write_cost(self, at: int) -> None:
        """Write once a second which share of the time went into the capture itself."""
        if not (self._began and self._tells_cost) or at - self._costed < COST_EVERY_NS:
            return
        share = 100 * self.cost_ns / (at - self._costed)
        self._costed, self.cost_ns = at, 0
        self.counter("capture cost", round(share, 4), "%")

    def _write(self, at: int, *, again: bool = True) -> None:
        """Write whole lines at once; what a full disk refuses waits, and in the end is lost and counted.

        After a write that was cut short, `again` writes once more to say why.
        """
        self._written = at
        lines = b"".join(line for line, _ in self._lines) + self._loss_line(at)
        if not lines or self._fd < 0:
            return
        data = b"\n" + lines if self._torn else lines
        try:
            done = os.write(self._fd, data)
        except OSError as e:
            done, self._reason = 0, os.strerror(e.errno or 0).lower()
        if done == len(data):
            self._lines.clear()
            self._torn, self._reported = False, self.lost
            self._go_on_in_next_part(at)
        else:
            done = max(0, done - (len(data) - len(lines)))
            self._torn = self._torn or done > 0
            self._keep_unwritten(done)
            if done and again:
                self._write(at, again=False)

    def _go_on_in_next_part(self, at: int) -> None:
        """Let go of a file that is full, or that another writer has gone on from; looked at now and then."""
        if at - self._looked < PART_EVERY_NS:
            return
        self._looked = at
        fd = self._parts.next_file(self._fd)
        if fd != self._fd:
            os.close(self._fd)
            self._fd = fd

    def _keep_unwritten(self, done: int) -> None:
        """Drop the lines that a failed write got whole into the file; the others wait while there is room."""
        while self._lines and done >= len(self._lines[0][0]) - 1:  # the next write supplies the newline
            done -= len(self._lines.pop(0)[0])
        if sum(len(line) for line, _ in self._lines) > KEPT:
            self.lost += sum(events or 0 for _, events in self._lines)
            self._lines = [(line, events) for line, events in self._lines if events is None]

    def _loss_line(self, at: int) -> bytes:
        """Return the line that says what was lost since the last such line; empty where nothing was."""
        if self.lost == self._reported:
            return b""
        text = f"{self.lost - self._reported} events could not be written: {self._reason}"
        return seal({"kind": "mark", "name": text, "t": at, "path": "log", **self._rank})

    def _abandon(self) -> None:
        """Let go of the file without a write, in a forked child: it belongs to the parent."""
        self._lock = threading.RLock()
        self._lines = []
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _numbers(values: Sequence[int]) -> str:
    return ("%d," * len(values))[:-1] % tuple(values)


_EMITTERS: Final[weakref.WeakSet[Emitter]] = weakref.WeakSet()


def emitting() -> bool:
    """Return whether anybody in this process writes events already.

    This module may be imported twice, as a part of `capture` and under a private package name.
    """
    here = os.path.realpath(__file__)
    modules = [m for name, m in list(sys.modules.items()) if name.endswith(".native.emit")]
    copies = [m for m in modules if os.path.realpath(getattr(m, "__file__", None) or "") == here]
    return any(emitter._fd >= 0 for copy in copies for emitter in copy._EMITTERS)


def _abandon_all() -> None:
    for emitter in list(_EMITTERS):
        emitter._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
