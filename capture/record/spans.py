"""Recorder: times the parts of a loop, at a third of a microsecond each. Standard library only."""

import os
import sys
from collections.abc import Sequence
from operator import gt, sub
from types import TracebackType
from typing import Any, Self

from ..native.emit import Emitter, now
from . import process_notes
from .process_notes import OUT_VARIABLE


class SpanTimer:
    """The timer of one part of a step, created once and entered whenever the part runs."""

    __slots__ = ("_done", "_id", "_pop", "_push")

    def __init__(self, id: int, stack: list[int], records: list[tuple[int, int, int]]) -> None:
        self._id = id
        self._push, self._pop, self._done = stack.append, stack.pop, records.append

    def __enter__(self) -> None:
        self._push(now())

    def __exit__(self, *error: object) -> None:
        self._done((self._id, self._pop(), now()))


class LoopStep:
    """One step of the loop; spans that end within it belong to it."""

    def __init__(self, recorder: "Recorder", number: int, phase: str | None, facts: dict[str, Any]) -> None:
        self.number = number
        self._recorder, self._phase, self._facts = recorder, phase, facts
        self._start = 0

    def __enter__(self) -> Self:
        self._recorder.write_spans()
        self._start = now()
        return self

    def __exit__(self, *error: object) -> None:
        took = now() - self._start
        context = self._facts.get("context")
        self._recorder.write_spans(step=self.number, phase=self._phase, context=context)
        facts = {"step": self.number, "phase": self._phase, **self._facts}
        self._recorder.emitter.event("step", self._phase or "step", t=self._start, dur=took, **facts)


class Recorder:
    """Records your own loop into a file that tracetui opens, also while it grows.

        from tracetui import Recorder

        with Recorder("prof.jsonl", model="mine") as rec:
            for n in range(100):
                with rec.step(context=n):
                    for layer in range(26):
                        with rec.span("attention", layer=layer):
                            ...

    Without a path it writes to `$TRACETUI_OUT`, which `tracetui live -- python loop.py` sets, or nowhere.
    Spans that contain other spans appear in the tree; the kernel table sums the innermost ones. `span` takes
    facts about the work: layer, op, category, shape, flops, bytes, window, track. In a hot loop, keep its
    result in a variable to save the lookup. A recorder belongs to one thread. On a GPU a span measures only
    the launch, unless it waits for the work.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        rank: int | None = None,
        lens: str = "wall",
        **meta: Any,
    ) -> None:
        self.emitter = Emitter(path or os.environ.get(OUT_VARIABLE) or os.devnull, rank=rank)
        title = name or str(meta.get("model", "run"))
        self.emitter.run(title, {"argv": sys.argv, "pid": os.getpid(), **meta})
        self._lens = lens
        self._spans: dict[Any, SpanTimer] = {}
        self._ops: list[dict[str, Any]] = []
        self._planned: set[int] = set()
        self._stack: list[int] = []
        self._records: list[tuple[int, int, int]] = []
        self._steps = 0
        self._span_ns = _measure_span_ns()

    def span(self, name: str, **facts: Any) -> SpanTimer:
        """Return the timer of a part of a step: the same object for the same name and facts."""
        key = (name, *facts.values()) if facts else name
        try:
            return self._spans[key]
        except (KeyError, TypeError):
            return self._create_span(key, name, facts)

    def step(
        self,
        *,
        phase: str | None = "decode",
        context: int | None = None,
        tokens: int | None = 1,
        batch: int | None = None,
    ) -> LoopStep:
        """Return the next step, to be entered; a prefill is step 0, others count from 1."""
        if phase != "prefill":
            self._steps += 1
        number = 0 if phase == "prefill" else self._steps
        return LoopStep(self, number, phase, {"context": context, "tokens": tokens, "batch": batch})

    def counter(self, name: str, value: float, unit: str = "") -> None:
        """Write a measured value with the current time."""
        self.emitter.counter(name, value, unit)

    def mark(self, text: str) -> None:
        """Write a line of text with the current time."""
        self.emitter.mark(text)

    def write_spans(
        self, *, step: int | None = None, phase: str | None = None, context: int | None = None
    ) -> None:
        """Pass the spans that have ended to the emitter, as those of this step."""
        if not self._records:
            return
        began = now()
        entered, starts, ends = zip(*self._records, strict=True)
        self._records.clear()
        ids = _assign_ids_by_nesting(entered, starts)
        new = set(ids) - self._planned
        if new:
            self._planned |= new
            self.emitter.plan(self._build_op(id) for id in sorted(new))
        durations = list(map(sub, ends, starts))
        self.emitter.cost_ns += now() - began + self._span_ns * len(durations)
        self.emitter.columns(ids, starts, durations, step=step, phase=phase, context=context)

    def _create_span(self, key: Any, name: str, facts: dict[str, Any]) -> SpanTimer:
        span = SpanTimer(2 * len(self._ops), self._stack, self._records)
        self._ops.append({"name": name, "lens": self._lens, **facts})
        try:
            self._spans[key] = span
        except TypeError:  # an unhashable fact such as a list: the caller keeps the object
            self._spans[len(self._ops)] = span
        return span

    def _build_op(self, id: int) -> dict[str, Any]:
        return {"id": id, "kind": "span" if id % 2 else "kernel", **self._ops[id // 2]}

    def close(self) -> None:
        """Write all waiting spans, and end the run and its file."""
        self.write_spans()
        self.emitter.end()
        if why := self.emitter.unwritten:
            process_notes.append_note("gaps " + why)
            sys.stderr.write(f"tracetui: the recording has gaps: {why}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.emitter.mark(f"the program ended with {type(error).__name__}: {error}", "log")
        self.close()


def _measure_span_ns() -> int:
    """Return the duration of an empty span, so that a recording can state its own cost."""
    span = SpanTimer(0, [], [])
    durations = []
    for _ in range(50):
        began = now()
        with span:
            pass
        durations.append(now() - began)
    return sorted(durations)[25]


def _assign_ids_by_nesting(ids: Sequence[int], starts: Sequence[int]) -> Sequence[int]:
    """Return even ids for innermost spans, odd ids for spans that contained others (they end later)."""
    previous_starts = (starts[0], *starts)
    if not any(map(gt, previous_starts, starts)):
        return ids
    return [
        id + (earlier >= start) if i else id
        for i, (id, earlier, start) in enumerate(zip(ids, previous_starts, starts, strict=False))
    ]
