"""Emitter: appends event lines to a file, cheaply enough to leave on, and never in the way of the program."""

import json
import os
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from operator import sub
from typing import Any, Final

from .schema import SCHEMA, seal, sealed

EVERY_NS: Final = 100_000_000  # what a kill -9 may cost at most
COST_EVERY_NS: Final = 1_000_000_000
KEPT: Final = 8 << 20  # bytes that wait for a full disk to have room again

now: Final = time.perf_counter_ns


def clock_pair() -> tuple[int, int]:
    """The same instant on the run's clock and in Unix time, by the closest of five readings."""
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
    an exception.
    """

    def __init__(self, path: str | os.PathLike[str], *, rank: int | None = None) -> None:
        self.lost = 0  # events that could not be written
        self.cost_ns = 0  # time spent in here; a recorder adds its own
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._rank: dict[str, int] = {} if rank is None else {"rank": rank}
        self._lock = threading.RLock()
        self._lines: list[tuple[bytes, int | None]] = []  # a line and its events; none for a vital line
        self._torn = os.fstat(self._fd).st_size > 0  # the file may end within a line
        self._events, self._told, self._reason = 0, 0, ""
        self._began = False  # whether a run is this writer's own
        self._written = self._costed = now()
        self._heads: dict[tuple[int, ...], str] = {}
        _EMITTERS.add(self)

    def run(self, name: str, meta: Mapping[str, Any] | None = None, *, id: str | None = None) -> None:
        """Starts a run, or joins the one that has this id."""
        about = {"id": id or secrets.token_hex(8), "name": name, "meta": meta or {}, "clock": clock_pair()}
        self._began = True
        self._put(seal({"kind": "run", "schema": SCHEMA, **about, **self._rank}), None)
        self.flush()

    def plan(self, ops: Iterable[Mapping[str, Any]]) -> None:
        """Ops by their numbers: `id` and `name`, and whatever else no step changes."""
        self._put(seal({"kind": "plan", "ops": [dict(op) for op in ops], **self._rank}), None)

    def columns(
        self, ops: Sequence[int], starts: Sequence[int], durations: Sequence[int], *,
        step: int | None = None, phase: str | None = None, context: int | None = None,
        count: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """The events of one step, as columns in the order of their starts."""
        if not ops:
            return
        began = now()
        facts = {"step": step, "phase": phase, "context": context, **self._rank}
        told = {name: value for name, value in facts.items() if value is not None}
        counts = f',"count":[{_numbers(count)}]' if count else ""
        head = json.dumps({"kind": "columns", **told, "t": starts[0]}, separators=(",", ":"))[:-1]
        line = (
            f"{head},{self._head(ops)}"
            f'"dt":[{_numbers(list(map(sub, starts, (starts[0], *starts))))}],'
            f'"dur":[{_numbers(durations)}]{counts}}}'
        )
        self._put(sealed(line.encode()), len(ops), began)

    def step(
        self, step: int, start: int, duration: int, *,
        phase: str = "decode", name: str | None = None, tokens: int | None = None,
        context: int | None = None, batch: int | None = None,
    ) -> None:  # fmt: skip
        """A step as a whole: its wall time and what it produced."""
        facts = {"tokens": tokens, "context": context, "batch": batch}
        self.event("step", name or phase, t=start, dur=duration, step=step, phase=phase, **facts)

    def event(self, kind: str, name: str, **columns: Any) -> None:
        """One event with any columns of the schema; those that are None are left out."""
        began = now()
        told = {key: value for key, value in columns.items() if value is not None}
        line = seal({"kind": kind, "name": name, **told, **self._rank})
        self._put(line, 0 if kind in ("counter", "memory", "mark") else 1, began)

    def counter(self, name: str, value: float, unit: str = "", *, track: str | None = None) -> None:
        """A measured value, now."""
        self.event("counter", name, t=now(), value=value, unit=unit or None, track=track)

    def mark(self, text: str, path: str = "note") -> None:
        """A line of text worth keeping, now; `path` is its class: note, log, selection, metric."""
        self.event("mark", text, t=now(), path=path)

    @property
    def unwritten(self) -> str:
        """What is not in the file for now, and why, as a sentence; empty while every write succeeds."""
        if not self._reason:
            return ""
        with self._lock:
            count = self.lost + sum(events or 0 for _, events in self._lines)
        return f"{count:,} events could not be written: {self._reason}" if count else ""

    def flush(self) -> None:
        """Writes what waits."""
        with self._lock:
            self._write(now())

    def close(self) -> None:
        """Writes what waits and closes the file, without a last word: for one who only adds to a run."""
        with self._lock:
            if self._fd >= 0:
                self._write(now())
                os.close(self._fd)
                self._fd = -1

    def end(self) -> None:
        """The last word: how many events were written, and how many could not be. Closes the file."""
        with self._lock:
            if self._fd < 0:
                return
            self._cost(now())
            lost = {"lost": self.lost, "reason": self._reason} if self.lost else {}
            self._lines.append((seal({"kind": "end", "events": self._events, **lost, **self._rank}), None))
            self.close()

    def _head(self, ops: Sequence[int]) -> str:
        """The ops of a step as JSON; most steps have the ops of the one before."""
        key = tuple(ops)
        if key not in self._heads:
            if len(self._heads) >= 64:
                self._heads.clear()
            self._heads[key] = f'"op":[{_numbers(key)}],'
        return self._heads[key]

    def _put(self, line: bytes, events: int | None, began: int | None = None) -> None:
        with self._lock:
            if self._fd < 0:
                return
            self._lines.append((line, events))
            self._events += events or 0
            at = now()
            if at - self._written >= EVERY_NS:
                self._cost(at)
                self._write(at)
                at = now()
            self.cost_ns += at - (began or at)

    def _cost(self, at: int) -> None:
        """Once a second: which share of the time went into the capture itself."""
        if not self._began or at - self._costed < COST_EVERY_NS:
            return
        share = 100 * self.cost_ns / (at - self._costed)
        self._costed, self.cost_ns = at, 0
        self.counter("capture cost", round(share, 4), "%")

    def _write(self, at: int, *, again: bool = True) -> None:
        """One write of whole lines; what a full disk refuses waits, and in the end is lost and counted.

        After a write that was cut short another one tells why.
        """
        self._written = at
        lines = b"".join(line for line, _ in self._lines) + self._loss(at)
        if not lines or self._fd < 0:
            return
        data = b"\n" + lines if self._torn else lines
        try:
            done = os.write(self._fd, data)
        except OSError as e:
            done, self._reason = 0, os.strerror(e.errno or 0).lower()
        if done == len(data):
            self._lines.clear()
            self._torn, self._told = False, self.lost
        else:
            done = max(0, done - (len(data) - len(lines)))
            self._torn = self._torn or done > 0
            self._keep_vital(done)
            if done and again:
                self._write(at, again=False)

    def _keep_vital(self, done: int) -> None:
        """After a failed write: lines that are whole in the file go, the others wait while there is room."""
        while self._lines and done >= len(self._lines[0][0]) - 1:  # the next write supplies the newline
            done -= len(self._lines.pop(0)[0])
        if sum(len(line) for line, _ in self._lines) > KEPT:
            self.lost += sum(events or 0 for _, events in self._lines)
            self._lines = [(line, events) for line, events in self._lines if events is None]

    def _loss(self, at: int) -> bytes:
        """The line that says what was lost since this was last said."""
        if self.lost == self._told:
            return b""
        text = f"{self.lost - self._told} events could not be written: {self._reason}"
        return seal({"kind": "mark", "name": text, "t": at, "path": "log", **self._rank})

    def _forget(self) -> None:
        """In a forked child: the file belongs to the parent."""
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


def _forget_all() -> None:
    for emitter in list(_EMITTERS):
        emitter._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
