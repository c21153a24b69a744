"""Watches llama-cpp-python: its decode calls as steps, and the nodes of the graph one by one in some of them.

llama.cpp asks the `cb_eval` of a context before each node whether the program wants to see it; a wanted node
is computed alone and waited for. That serialises the work, so nodes are asked for in a few steps only,
while every step is timed. A callback of the program's own hears what it would hear without us, and what it
answers holds. A fault in here ends the watching with one line, never the program.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import ctypes
import functools
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import now
from .attach import wrap_ends
from .guard import Guarded
from .kernels import Duty, emit_window
from .llama_batch import facts_of
from .llama_nodes import NodeOps
from .recording import Recording
from .wraps import Wraps

if TYPE_CHECKING:
    from collections.abc import Callable

    from .phases import Facts

GAPS: Final = 9  # of the last steps, whose median is the usual one
TRIED: Final = 200  # calls by which the price of a question is found


def install(module: Any) -> LlamaWatcher:
    """Watch all contexts that this process makes with `llama_cpp.llama_cpp`; return the watcher."""
    watcher = LlamaWatcher(module)
    for name in ("llama_init_from_model", "llama_new_context_with_model"):
        if hasattr(module, name):
            setattr(module, name, _observed_init(getattr(module, name), watcher))
    for name, encodes in (("llama_decode", False), ("llama_encode", True)):
        if hasattr(module, name):
            setattr(module, name, _timed(getattr(module, name), watcher, encodes))
    wrap_ends(watcher, Wraps())
    return watcher


def _observed_init(plain: Callable[..., Any], watcher: LlamaWatcher) -> Callable[..., Any]:
    """Return what makes a context, with a callback of ours in front of the program's own."""

    @functools.wraps(plain)
    def init(model: Any, params: Any, *more: Any) -> Any:
        given, context = params, None
        if not watcher.off:
            try:
                given, context = watcher.observe(model, params)
            except Exception as e:
                given = params
                watcher.let_go(e)
        handle = plain(model, given, *more)
        if context is not None and handle:
            watcher.contexts[_address(handle)] = context
        return handle

    return init


def _timed(plain: Callable[..., Any], watcher: LlamaWatcher, encodes: bool) -> Callable[..., Any]:
    """Return what decodes a batch, as a step of its context."""

    @functools.wraps(plain)
    def decode(handle: Any, batch: Any, *more: Any) -> Any:
        context = None if watcher.off else watcher.contexts.get(_address(handle))
        if context is None:
            return plain(handle, batch, *more)
        watcher.guard(lambda: context.begin(batch, encodes))
        code: Any = -1
        try:
            code = plain(handle, batch, *more)
            return code
        finally:
            watcher.guard(lambda: context.end(failed=code != 0))

    return decode


def _address(handle: Any) -> int:
    return int(getattr(handle, "value", handle) or 0)


class LlamaWatcher(Guarded):
    """The contexts of a process, and the recording that they write to."""

    def __init__(self, module: Any) -> None:
        super().__init__(Recording())
        self.module = module
        self.nodes = NodeOps(module, self.recording.ops)
        self.contexts: dict[int, Context] = {}
        self._kept: list[Context] = []  # llama.cpp holds their callbacks for as long as it likes

    def observe(self, model: Any, params: Any) -> tuple[Any, Context]:
        """Return parameters with our callback, and the context that it belongs to."""
        number = len(self._kept) + 1
        context = Context(
            self, params, None if number == 1 else f"context {number}", _describe(self.module, model)
        )
        own = type(params).from_buffer_copy(params)
        own.cb_eval, own.cb_eval_user_data = context.callback, None
        self._kept.append(context)
        return own, context

    def close(self) -> None:
        """End the recording with the process."""
        if self.off:
            return
        for context in self._kept:
            self.guard(context.close)
        self.off = True
        with suppress(Exception):
            self.recording.close()

    def forget_after_fork(self) -> None:
        """Let go in a forked child: the threads that compute stayed with its parent."""
        self.off = True
        self.recording.forget_after_fork()


class Context:
    """One context of llama.cpp: what it decodes, step by step."""

    def __init__(self, watcher: LlamaWatcher, params: Any, track: str | None, model: str) -> None:
        self._watcher, self._track, self._model = watcher, track, model
        self._theirs = params.cb_eval if params.cb_eval else None
        self._their_data, self._params = params.cb_eval_user_data, params
        self.callback = type(params.cb_eval)(self._evaluate)
        self._duties = {"prefill": Duty(), "decode": Duty()}
        self._price = self._price_of_a_question()
        self._asked = 0  # questions of the step that is looked at
        self._questions = 0  # that every step asks: as many as the last one that was looked at
        self._looking = False
        self._wanted = False  # whether the program wants to see the node that was asked for
        self._number: int | None = None  # of the node that is computed
        self._named: tuple[int | None, str] = (None, "")  # layer and name of the node before this one
        self._began = 0
        self._rows: list[tuple[int, int, int]] = []
        self._start = self._called = self._end = 0
        self._facts: Facts | None = None
        self._looked = False
        self._gaps: list[int] = []

    def begin(self, batch: Any, encodes: bool) -> None:
        """Note that a batch is decoded: the step before it ends now, and is written as a part of this one."""
        at, recording = now(), self._watcher.recording
        facts = facts_of(batch, encodes)
        if not recording.open_as(self._model, self._about):
            self._watcher.off = True
            return
        self._write(at, follows=facts.phase == "decode")
        self._rows, self._facts = [], facts
        recording.forwards += 1
        self._named, self._asked = (None, ""), 0
        self._start, self._called = at, now()
        self._looking = self._looked = self._duties[facts.phase].due(at)

    def end(self, *, failed: bool) -> None:
        """Note that the batch is decoded; one that llama.cpp refused is no step."""
        self._end, self._looking, self._number = now(), False, None
        if failed:
            self._facts = None

    def close(self) -> None:
        """Write the last step."""
        self._write(now(), follows=False)

    def _evaluate(self, node: int, asks: bool, data: Any) -> bool:
        """Answer llama.cpp whether a node is to be seen, and see it; False after a node ends the graph."""
        if asks:
            self._wanted = bool(self._theirs(node, True, self._their_data)) if self._theirs else False
            return (self._looking and self._ask(node)) or self._wanted
        if self._number is not None:
            ended = now()
            self._rows.append((self._number, self._began, ended - self._began))
            self._number = None
        return bool(self._theirs(node, False, self._their_data)) if self._wanted and self._theirs else True

    def _ask(self, node: int) -> bool:
        """Return whether the node is one that computes; its time begins now."""
        try:
            nodes = self._watcher.nodes
            self._number = nodes.number(node, self._named, self._track)
            self._named = nodes.named(node, self._named)
        except Exception as e:
            self._looking, self._number = False, None
            self._watcher.let_go(e)
        self._asked += 1
        self._began = now()
        return self._number is not None

    def _write(self, at: int, *, follows: bool) -> None:
        """Write the step that is open, up to this moment; what follows none at once has a usual gap."""
        facts, self._facts = self._facts, None
        if facts is None:
            return
        gap = at - self._end
        if follows:
            self._gaps = [*self._gaps[1 - GAPS :], gap]
        else:
            gap = min(gap, sorted(self._gaps)[len(self._gaps) // 2] if self._gaps else 0)
        recording, took = self._watcher.recording, self._end + gap - self._start
        rows = self._all_rows(gap) if self._looked else []
        flat = [value for row in rows for value in row]
        number = recording.step(self._start, took, flat, facts, self._track)
        assert recording.emitter is not None  # noqa: S101
        recording.emitter.cost_ns += self._charge(facts.phase, took)
        if self._looked:
            emit_window(recording.emitter, "wall", step=number, phase=facts.phase)

    def _all_rows(self, gap: int) -> list[tuple[int, int, int]]:
        """Return the nodes of a step, with what llama.cpp did around them and the program after them."""
        ops, took = self._watcher.recording.ops, self._end - self._called
        written = ops.of_part("recording", "wall", self._track)
        around = ops.of({"name": "llama_decode (own work)", "op": "host", "category": "host",
                         "lens": "wall", "path": "llama_decode", "track": self._track})  # fmt: skip
        rows = [(written, self._start, self._called - self._start), *self._rows]
        rows.append((around, self._called, took - sum(row[2] for row in self._rows)))
        return [*rows, (ops.of_part("sampling", "wall", self._track), self._end, gap)] if gap else rows

    def _charge(self, phase: str, took: int) -> int:
        """Return what the watching of a step took: the questions, and what looking slowed it down by."""
        duty = self._duties[phase]
        if self._looked:
            self._questions = self._asked
        cost = round(self._questions * self._price)
        if not self._looked:
            duty.add_plain_step(took)
            return cost
        spent = duty.spent_ns
        duty.add_window(now(), cost, took)
        return duty.spent_ns - spent

    def _price_of_a_question(self) -> float:
        """Return how many ns one question takes, asked through the same door as llama.cpp asks."""
        ask = ctypes.cast(self.callback, type(self.callback))
        theirs, self._theirs, self._looking = self._theirs, None, False
        began = now()
        for _ in range(TRIED):
            ask(None, True, None)
        self._theirs = theirs
        return (now() - began) / TRIED

    def _about(self) -> dict[str, Any]:
        package = sys.modules.get("llama_cpp")
        offloads = getattr(self._watcher.module, "llama_supports_gpu_offload", bool)()
        return {
            "model": self._model,
            "driver": "llama-cpp-python, attached",
            "llama_cpp": str(getattr(package, "__version__", "")),
            "observed": "nodes one by one, in some steps: that serialises them",
            **({} if offloads else {"device": "cpu"}),
            "argv": list(getattr(sys, "argv", [])),
            "pid": os.getpid(),
        }


def _describe(module: Any, model: Any) -> str:
    """Return what llama.cpp calls a model, as `qwen2 0.5B Q4_K - Medium`."""
    text = ctypes.create_string_buffer(128)
    with suppress(Exception):
        module.llama_model_desc(model, text, ctypes.sizeof(text))
    return text.value.decode("utf-8", "replace") or "llama.cpp"
