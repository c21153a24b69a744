"""Record llama-cpp-python: its decode calls as steps, in some of them each node of the graph.

llama.cpp asks the `cb_eval` callback of a context before each node whether it should be observed; an observed
node is computed alone and waited for. Since this serialises the work, only a few steps observe nodes, while
every step is timed. A callback of the program itself is called as usual, and its answer counts. An error of
the recorder is printed in one line and ends the recording, never the program.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import ctypes
import functools
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import now
from .call_phases import CallFacts
from .fault_guard import FaultGuard, hide_frame
from .llama_nodes import NodeOps
from .patches import Patches, close_at_exit
from .process_recording import ProcessRecording
from .profiler_windows import WindowBudget, emit_window

if TYPE_CHECKING:
    from collections.abc import Callable

RECENT_GAPS: Final = 9  # the typical gap between two steps is the median of so many
MEASURED_QUERIES: Final = 200  # queries of `cb_eval` that are timed to know the cost of one
# Number formats of weights as rows call them, and sizes as llama.cpp calls them
_FLOATS: Final = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
_SIZES: Final = {"layers": "n_layer", "d_model": "n_embd", "parameters": "n_params"}
MAX_INSPECTED_TOKENS: Final = 4096  # sequences and positions of longer batches are not read


def install(module: Any) -> LlamaRecorder:
    """Record all contexts that this process creates with `llama_cpp.llama_cpp`; return the recorder."""
    recorder = LlamaRecorder(module)
    for name in ("llama_init_from_model", "llama_new_context_with_model"):
        if hasattr(module, name):
            setattr(module, name, _wrap_init(getattr(module, name), recorder))
    for name, encodes in (("llama_decode", False), ("llama_encode", True)):
        if hasattr(module, name):
            setattr(module, name, _wrap_decode(getattr(module, name), recorder, encodes))
    close_at_exit(recorder, Patches())
    return recorder


def _wrap_init(original: Callable[..., Any], recorder: LlamaRecorder) -> Callable[..., Any]:
    """Return the function that creates a context, with our callback before the program's own."""

    @functools.wraps(original)
    def init(model: Any, params: Any, *others: Any) -> Any:
        used_params, context = params, None
        if not recorder.is_off:
            try:
                used_params, context = recorder.add_context(model, params)
            except Exception as e:
                recorder.stop_recording(e)
        handle = original(model, used_params, *others)
        if context is not None and handle:
            recorder.contexts[_read_address(handle)] = context
        return handle

    return init


def _wrap_decode(original: Callable[..., Any], recorder: LlamaRecorder, encodes: bool) -> Callable[..., Any]:
    """Return the function that decodes a batch, recorded as a step of its context."""

    @functools.wraps(original)
    def decode(handle: Any, batch: Any, *others: Any) -> Any:
        context = None if recorder.is_off else recorder.contexts.get(_read_address(handle))
        if context is None:
            return original(handle, batch, *others)
        recorder.guard(lambda: context.begin_step(batch, encodes))
        code: Any = -1
        try:
            code = original(handle, batch, *others)
            return code
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            recorder.guard(lambda: context.end_step(failed=code != 0))

    return decode


def _read_address(handle: Any) -> int:
    return int(getattr(handle, "value", handle) or 0)


class LlamaRecorder(FaultGuard):
    """The contexts of a process, and the recording that they share."""

    def __init__(self, module: Any) -> None:
        super().__init__(ProcessRecording())
        self.module = module
        self.nodes = NodeOps(module, self.recording.ops)
        self.contexts: dict[int, LlamaContext] = {}
        # keeps their callbacks alive: llama.cpp may call them at any time
        self._all_contexts: list[LlamaContext] = []

    def add_context(self, model: Any, params: Any) -> tuple[Any, LlamaContext]:
        """Return parameters with our callback, and the context it belongs to."""
        track = f"context {len(self._all_contexts) + 1}" if self._all_contexts else None
        facts = _read_sizes(self.module, model), _describe_model(self.module, model)
        context = LlamaContext(self, params, track, *facts)
        patched = type(params).from_buffer_copy(params)
        patched.cb_eval, patched.cb_eval_user_data = context.callback, None
        self._all_contexts.append(context)
        return patched, context

    def close(self) -> None:
        """End the recording with the process."""
        if self.is_off:
            return
        for context in self._all_contexts:
            self.guard(context.close)
        self.is_off = True
        with suppress(Exception):
            self.recording.close()

    def forget_after_fork(self) -> None:
        """Stop in a forked child, which has none of the threads that compute."""
        self.is_off = True
        self.recording.forget_after_fork()


class LlamaContext:
    """One context of llama.cpp and its steps."""

    def __init__(
        self, recorder: LlamaRecorder, params: Any, track: str | None, sizes: dict[str, int], model: str
    ) -> None:
        self._recorder, self._track, self._sizes, self._model = recorder, track, sizes, model
        self._user_callback = params.cb_eval or None
        self._user_data, self._params = params.cb_eval_user_data, params
        self.callback = type(params.cb_eval)(self._evaluate)
        self._budgets = {"prefill": WindowBudget(), "decode": WindowBudget()}
        self._query_ns = self._measure_query_ns()
        self._step_queries = 0  # queries in the current step
        self._queries_per_step = 0  # estimated from the last step with node times
        self._is_timing_nodes = False
        self._is_wanted_by_user = False  # whether the program observes the current node
        self._op_id: int | None = None  # of the node being computed
        self._previous_name: tuple[int | None, str] = (None, "")  # layer and name of the previous node
        self._node_start = 0
        self._rows: list[int] = []  # op, start and duration of each, flat
        self._start = self._decode_start = self._decode_end = 0
        self._facts: CallFacts | None = None
        self._has_node_times = False
        self._gaps: list[int] = []

    def begin_step(self, batch: Any, encodes: bool) -> None:
        """Start a step for a batch; the step before ends now and is written, at the expense of this one."""
        at, recording = now(), self._recorder.recording
        facts = read_batch_facts(batch, encodes)
        if not recording.open_as(self._model, self._build_meta):
            self._recorder.is_off = True
            return
        self._write_step(at, follows=facts.phase == "decode")
        self._rows, self._facts = [], facts
        recording.forwards += 1
        self._previous_name, self._step_queries = (None, ""), 0
        self._start, self._decode_start = at, now()
        self._is_timing_nodes = self._has_node_times = self._budgets[facts.phase].is_due(at)

    def end_step(self, *, failed: bool) -> None:
        """Note the end of decoding; a batch refused by llama.cpp is not a step."""
        self._decode_end, self._is_timing_nodes, self._op_id = now(), False, None
        if failed:
            self._facts = None

    def close(self) -> None:
        """Write the last step."""
        self._write_step(now(), follows=False)

    def _evaluate(self, node: int, asks: bool, data: Any) -> bool:
        """Answer whether to observe a node, if `asks`; else note its end, where False stops the graph."""
        if asks:
            ask_user = self._user_callback
            self._is_wanted_by_user = bool(ask_user and ask_user(node, True, self._user_data))
            return (self._is_timing_nodes and self._begin_node(node)) or self._is_wanted_by_user
        if self._op_id is not None:
            ended = now()
            self._rows += self._op_id, self._node_start, ended - self._node_start
            self._op_id = None
        if self._is_wanted_by_user and self._user_callback:
            return bool(self._user_callback(node, False, self._user_data))
        return True

    def _begin_node(self, node: int) -> bool:
        """Return whether the node computes anything; its time starts now."""
        try:
            nodes = self._recorder.nodes
            self._op_id = nodes.find_op_id(node, self._previous_name, self._track)
            self._previous_name = nodes.find_name(node, self._previous_name)
        except Exception as e:
            self._is_timing_nodes, self._op_id = False, None
            self._recorder.stop_recording(e)
        self._step_queries += 1
        self._node_start = now()
        return self._op_id is not None

    def _write_step(self, at: int, *, follows: bool) -> None:
        """Write the step in progress with the gap until `at`, or a typical one if no step follows."""
        facts, self._facts = self._facts, None
        if facts is None:
            return
        gap = at - self._decode_end
        if follows:
            self._gaps = [*self._gaps[1 - RECENT_GAPS :], gap]
        else:
            gap = min(gap, sorted(self._gaps)[len(self._gaps) // 2] if self._gaps else 0)
        recording, duration = self._recorder.recording, self._decode_end + gap - self._start
        rows = self._build_rows(gap) if self._has_node_times else []
        step = recording.write_step(self._start, duration, rows, facts, self._track)
        assert recording.emitter is not None  # noqa: S101
        recording.emitter.cost_ns += self._charge_step(facts.phase, duration)
        if self._has_node_times:
            emit_window(recording.emitter, "wall", step=step, phase=facts.phase)

    def _build_rows(self, gap: int) -> list[int]:
        """Return the rows of a step, flat as `_rows`: its nodes, and the work around them."""
        ops, duration = self._recorder.recording.ops, self._decode_end - self._decode_start
        recording_op = ops.assign_part("recording", "wall", self._track)
        llama_op = ops.assign({"name": "llama_decode (own work)", "op": "host", "category": "host",
                         "lens": "wall", "path": "llama_decode", "track": self._track})  # fmt: skip
        rows = [recording_op, self._start, self._decode_start - self._start, *self._rows]
        rows += llama_op, self._decode_start, duration - sum(self._rows[2::3])
        if gap:
            rows += ops.assign_part("sampling", "wall", self._track), self._decode_end, gap
        return rows

    def _charge_step(self, phase: str, duration: int) -> int:
        """Return the recording cost of a step: the queries, and the slowdown of observed nodes."""
        budget = self._budgets[phase]
        if self._has_node_times:
            self._queries_per_step = self._step_queries
        cost = round(self._queries_per_step * self._query_ns)
        if not self._has_node_times:
            budget.add_plain_step(duration)
            return cost
        spent_before = budget.spent_ns
        budget.add_window(now(), cost, duration)
        return budget.spent_ns - spent_before

    def _measure_query_ns(self) -> float:
        """Return the duration of one query, through the same C callback as llama.cpp uses."""
        query = ctypes.cast(self.callback, type(self.callback))
        user_callback, self._user_callback, self._is_timing_nodes = self._user_callback, None, False
        start = now()
        for _ in range(MEASURED_QUERIES):
            query(None, True, None)
        self._user_callback = user_callback
        return (now() - start) / MEASURED_QUERIES

    def _build_meta(self) -> dict[str, Any]:
        package = sys.modules.get("llama_cpp")
        offloads = getattr(self._recorder.module, "llama_supports_gpu_offload", bool)()
        return {
            **parse_description(self._model),
            **self._sizes,
            "driver": "llama-cpp-python, attached",
            "llama_cpp": str(getattr(package, "__version__", "")),
            "observed": "single nodes in some steps, which serialises them",
            **({} if offloads else {"device": "cpu"}),
            **_read_settings(self._recorder.module, self._params),
            "argv": list(getattr(sys, "argv", [])),
            "pid": os.getpid(),
        }


def _describe_model(module: Any, model: Any) -> str:
    """Return llama.cpp's description of a model, such as `qwen2 0.5B Q4_K - Medium`."""
    text = ctypes.create_string_buffer(128)
    with suppress(Exception):
        module.llama_model_desc(model, text, ctypes.sizeof(text))
    return text.value.decode("utf-8", "replace") or "llama.cpp"


def parse_description(text: str) -> dict[str, Any]:
    """Return model and number format of its weights of llama.cpp's description.

    >>> parse_description("qwen2 0.5B Q4_K - Medium")
    {'model': 'qwen2 0.5B', 'quant': 'Q4_K - Medium'}
    """
    architecture, size, weights = (*text.replace("(guessed)", "").split(None, 2), "", "")[:3]
    weights = weights.strip()
    weights = weights[len("all ") :] if weights.startswith("all ") else weights
    model = {"model": f"{architecture} {size}".strip()}
    if weights in _FLOATS:
        return {**model, "dtype": _FLOATS[weights], "quant": "none"}
    return {**model, "quant": weights} if weights else model


def _read_sizes(module: Any, model: Any) -> dict[str, int]:
    """Return the sizes of a model that this version of llama.cpp reports."""
    sizes: dict[str, int] = {}
    for key, name in _SIZES.items():
        read = getattr(module, f"llama_model_{name}", getattr(module, f"llama_{name}", None))
        with suppress(Exception):
            sizes[key] = int(read(model))  # type: ignore[misc]
    return sizes


def _read_settings(module: Any, params: Any) -> dict[str, Any]:
    """Return threads, sizes, attention and number formats of the cache, as far as a context states them."""
    settings: dict[str, Any] = {}
    fields = {"threads": "n_threads", "n_ctx": "n_ctx", "n_batch": "n_batch", "n_ubatch": "n_ubatch"}
    for key, field in fields.items():
        number = getattr(params, field, 0)
        if number > 0:
            settings[key] = int(number)
    kind = getattr(params, "flash_attn_type", getattr(params, "flash_attn", None))  # -1: llama.cpp chooses
    if kind in (0, 1):
        settings["attention"] = "flash" if kind else "explicit"
    formats = {n: name for name, n in vars(module).items() if name.startswith("GGML_TYPE_")}
    names = [formats.get(getattr(params, field, None)) for field in ("type_k", "type_v")]
    if all(names):
        settings["kv_cache"] = " and ".join(dict.fromkeys(n[len("GGML_TYPE_") :].lower() for n in names if n))
    return settings


def read_batch_facts(batch: Any, encodes: bool) -> CallFacts:
    """Return phase, tokens, sequences and context length of a batch; None: unknown.

    A decode produces a token for each sequence; of a prefill it is how many each reads.
    """
    tokens = int(batch.n_tokens)
    sequences = _count_sequences(batch, tokens) if tokens <= MAX_INSPECTED_TOKENS else 1
    context = None
    if batch.pos and tokens <= MAX_INSPECTED_TOKENS:
        context = max((batch.pos[i] for i in range(tokens)), default=-1) + 1
    each, rest = divmod(tokens, sequences)
    if each == 1 and not rest and not encodes:
        return CallFacts("decode", sequences, sequences, context)
    return CallFacts("prefill", None if rest else each, sequences, context)


def _count_sequences(batch: Any, tokens: int) -> int:
    """Return the number of sequences in a batch, one if it does not say."""
    if not (batch.seq_id and batch.n_seq_id):
        return 1
    return len({batch.seq_id[i][0] for i in range(tokens) if batch.n_seq_id[i] > 0}) or 1
