"""The recording of one process: started with its first module call, written step by step."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import os
import secrets
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import WRITE_INTERVAL_NS, Emitter, has_open_emitter, now
from ..native.schema import OWN_PROFILE_MARK, encode_json
from . import process_notes, torchrun
from .call_phases import CallFacts, find_cache
from .call_stack import EndedStep
from .op_ids import OpIds
from .process_notes import OUT_VARIABLE, RUN_VARIABLE, SAVED_STEPS, LastSteps
from .profiler_windows import emit_window
from .step_module import find_device_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..native.emit import Line, LineEncoder
    from .profiler_windows import ProfilerWindow

_NO_FACTS: Final = CallFacts("")
_QUANTISED_PACKAGES: Final = ("torch.ao.nn.quantized", "bitsandbytes.nn", "auto_gptq", "awq")
_COMPILED_MARK: Final = "_torchdynamo_orig_callable"  # of functions that torch.compile returned


# what capture/model_work reads of a config.json
CONFIG_KEYS: Final = (
    "model_type", "dtype", "torch_dtype", "vocab_size", "num_hidden_layers", "n_layer", "num_layers",
    "n_layers", "hidden_size", "n_embd", "d_model", "num_attention_heads", "n_head", "n_heads",
    "num_key_value_heads", "num_kv_heads", "head_dim", "intermediate_size", "n_inner", "ffn_dim",
    "attn_output_gate", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "num_experts",
    "num_local_experts", "n_routed_experts", "num_experts_per_tok", "experts_per_token", "moe_topk",
    "moe_intermediate_size", "expert_ffn_hidden_size", "shared_expert_intermediate_size", "n_shared_experts",
    "num_shared_experts", "first_k_dense_replace", "mlp_only_layers", "decoder_sparse_step", "moe_layer_freq",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "sliding_window", "use_sliding_window", "layer_types", "full_attention_interval",
    "sliding_window_pattern", "quantization_config", "attn_config", "ffn_config", "multi_query",
    "new_decoder_architecture", "kv_n_heads", "attention_head_dim", "attention_hidden_size",
    "intermediate_size_mlp", "ffn_hidden_size", "moe_num_experts", "moe_k", "moe_top_k",
    "moe_shared_expert_intermediate_size", "shared_intermediate_size", "moe_num_shared_experts",
    "moe_layers", "moe_layer_start_index", "moe_layer_interval", "interleave_moe_layer_step",
    "expert_layer_period", "expert_layer_offset",
)  # fmt: skip


class ProcessRecording:
    """The events that one process adds to the file; several threads may call it."""

    def __init__(self) -> None:
        self.emitter: Emitter | None = None
        self._run: tuple[str, dict[str, Any], str] | None = None  # name, meta and id until the first rows
        self.process: str | None = None  # names this process if another one writes to the run, too
        self.ops = OpIds()
        self.is_refused = False
        self._lock = threading.RLock()
        self._counter = process_notes.StepCounter(shared=False)
        self.steps = self.forwards = 0
        self.tracks: set[str | None] = set()  # of the threads with steps
        self._waiting: list[EndedStep] = []  # finished steps to be written
        self._written_at = 0  # time of the last write
        self._is_reported = False  # whether the counts so far are in the notes
        self._writer_fields: dict[str, int] = {}  # in each line of this process
        self._last_steps: list[tuple[LastSteps, str | None]] = []  # of each thread, with its track
        self._is_profiled = False  # whether the program uses a profiler of its own
        self._profile_marks: list[tuple[str, int]] = []  # at which it did and did not, to be written

    def open(self, module: Any) -> bool:
        """Start writing with the first module that is called; return whether this process may."""
        return self.open_as(find_model_name(module) or "program", lambda: _build_meta(module))

    def open_as(self, name: str, build_meta: Callable[[], dict[str, Any]]) -> bool:
        """Start writing a run with this name and metadata; return whether this process may."""
        with self._lock:
            if self.emitter is None and not self.is_refused:
                self.is_refused = has_open_emitter()  # the program records itself
                if not self.is_refused:
                    self._begin(name, build_meta)
            return not self.is_refused

    def rename(self, module: Any) -> None:
        """Name the run after a larger module, as long as nothing is written: an encoder is called first."""
        with self._lock:
            if self._run is not None:
                self._run = find_model_name(module) or "program", _build_meta(module), self._run[2]
                self._describe_last_steps()

    def build_last_steps(self, track: str | None) -> LastSteps:
        """Create the file of the last steps of a thread with this track."""
        with self._lock:
            self._last_steps.append((LastSteps(len(self._last_steps)), track))
            self._describe_last_steps()
            return self._last_steps[-1][0]

    def note_cache(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> None:
        """Note the kind of KV cache that the model is called with, as long as nothing is written."""
        if self._run is None:  # asked without the lock, because every step asks
            return
        cache = find_cache(args, kwargs)
        with self._lock:
            if self._run is not None and cache is not None:
                self._run[1]["kv_cache"] = type(cache).__name__

    def note_profile(self, at: int, *, is_begin: bool) -> None:
        """Note that the program starts or stops a profiler of its own: steps meanwhile are slower."""
        with self._lock:
            if is_begin != self._is_profiled:  # else it is one of our windows that ends
                self._is_profiled = is_begin
                self._profile_marks.append(("begin" if is_begin else "end", at))

    def queue_step(self, step: EndedStep) -> None:
        """Queue a step to be written together with others, at most 100 ms after the call that follows it.

        A step with a window is written at once, because it is large.
        """
        self.queue_steps([step])

    def queue_steps(self, steps: Sequence[EndedStep]) -> None:
        """Queue several steps likewise."""
        with self._lock:
            if self._is_reported:
                self._is_reported = False
                process_notes.append_note("continued")
            self._waiting += steps
            is_full = len(self._waiting) >= SAVED_STEPS // 2
            has_window = any(step.window is not None for step in steps)
            if is_full or has_window or now() - self._written_at >= WRITE_INTERVAL_NS:
                self.write_waiting()

    def write_waiting(self) -> None:
        """Write the queued steps; their numbers are claimed together."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if not waiting or self.emitter is None:
                return
            self._counter.reserve(len(waiting) - self._is_initial_prefill(waiting[0].facts))
            self._write_steps(waiting)
            self.emitter.flush()
            self._written_at = now()

    def report_so_far(self) -> None:
        """Write the queued steps and note their number: the process may end without a word."""
        with self._lock:
            self.write_waiting()
            if self.emitter is not None and not self._is_reported:
                self._is_reported = True
                process_notes.append_note(f"so-far {self.steps} {self.forwards} {len(self.tracks)}")

    def write_step(
        self, start: int, duration: int, rows: Sequence[int], facts: CallFacts | None, track: str | None
    ) -> int:
        """Write a step with its rows and return its number.

        `rows` has op, start and duration of each row, flat.
        """
        return self._write_steps([EndedStep(start, duration, rows, facts, track, lens="")])

    def _write_steps(self, steps: Sequence[EndedStep]) -> int:
        """Write steps with their rows, those that a profiler window sampled, too; return the last number."""
        with self._lock:
            assert self.emitter is not None  # noqa: S101
            self._write_run()
            self._write_new_ops()
            lines, began, number = [], now(), 0
            for step in steps:
                is_initial = self._is_initial_prefill(step.facts)
                self.steps += 1
                number = 0 if is_initial else self._counter.claim_number()
                self.tracks.add(step.track)
                lines += self._encode_step(self.emitter.encoder, step, number)
                if step.window is not None:
                    self.emitter.steps(lines, began)
                    self._write_window(step, step.window, number)
                    lines, began = [], now()
            self.emitter.steps(lines, began)
        return number

    def _encode_step(self, encoder: LineEncoder, step: EndedStep, number: int) -> list[Line]:
        facts = step.facts or _NO_FACTS
        phase = facts.phase or None
        return encoder.encode_step(
            step.rows, step=number, start=step.start, duration=step.duration, phase=phase,
            name=phase if phase in ("prefill", "decode") else "step", track=self._prefix_track(step.track),
            tokens=facts.tokens, batch=facts.batch, context=facts.context, shape=facts.shape,
        )  # fmt: skip

    def write_rows(self, rows: Sequence[int], step: int | None, phase: str | None) -> None:
        """Write rows: op, start and duration of each, flat."""
        if not rows or self.emitter is None:
            return
        with self._lock:
            self._write_run()
            self._write_new_ops()
            self.emitter.columns(rows[::3], rows[1::3], rows[2::3], step=step, phase=phase)

    def _write_new_ops(self) -> None:
        if self.emitter is not None and (new := self.ops.pop_new()):
            self.emitter.plan({**op, "track": self._prefix_track(op.get("track"))} for op in new)

    def _write_window(self, step: EndedStep, window: ProfilerWindow, number: int) -> None:
        """Write the rows that a profiler window sampled in a step."""
        assert self.emitter is not None  # noqa: S101
        self.emitter.cost_ns += step.window_cost_ns
        for problem, count in window.problems.items():
            self.emitter.mark(f"window of step {number}: {count} {problem}", "log")
        lens = "gpu" if step.lens == "host" else "host"  # the one that is not written in every step
        phase = (step.facts.phase or None) if step.facts else None
        emit_window(self.emitter, lens, step=number, phase=phase)
        rows: list[int] = []
        for row in window.rows:
            rows += self.ops.assign_leaf_work(row, phase or "forward", step.track), row.start, row.duration
        self.write_rows(rows, number, None)

    def close(self) -> None:
        """End the recording with the process."""
        with self._lock:
            if self.emitter is None:
                return
            try:
                self._write_run()
                self.write_waiting()
            finally:
                self.emitter.end()
            for last, _ in self._last_steps if not self.emitter.unwritten else ():
                last.remove()
            process_notes.append_note(f"seen {self.steps} {self.forwards} {len(self.tracks)}")
            if why := self.emitter.unwritten:
                process_notes.append_note("gaps " + why)
                sys.stderr.write(f"tracetui: the recording has gaps: {why}\n")

    def forget_after_fork(self) -> None:
        """Reset in a forked child; the emitter has closed the file already."""
        self._lock = threading.RLock()
        self.emitter, self._run, self.process, self.ops = None, None, None, OpIds()
        self.is_refused, self.steps, self.forwards, self.tracks = False, 0, 0, set()
        self._waiting, self._is_reported, self._is_profiled = [], False, False
        self._profile_marks = []
        for last, _ in self._last_steps:
            last.leave_to_parent()
        self._last_steps = []

    def _begin(self, name: str, build_meta: Callable[[], dict[str, Any]]) -> None:
        run_id, rank = process_notes.read_setting(RUN_VARIABLE), torchrun.read_rank(os.environ)
        number = rank.number if rank else _find_rank_number()
        joins_run = number is None and bool(run_id) and not process_notes.claim_first()
        if joins_run:
            self.process = f"process {os.getpid()}"
        self._counter = process_notes.StepCounter(shared=number is None)
        out = process_notes.read_setting(OUT_VARIABLE) or os.devnull
        self.emitter = Emitter(out, rank=number, writer=os.getpid() if joins_run else None)
        fields = {"rank": number, "writer": os.getpid() if joins_run else None}
        self._writer_fields = {name: value for name, value in fields.items() if value is not None}
        if not run_id:
            run_id = torchrun.build_run_id(os.environ, rank) if rank else secrets.token_hex(8)
            os.environ[RUN_VARIABLE] = run_id
        self._run = name, build_meta(), run_id
        process_notes.append_note("watched")

    def _describe_last_steps(self) -> None:
        """Note with the last steps of each thread what a recorder needs to write them."""
        name, meta, run_id = self._run or ("", {}, "")
        for last, track in self._last_steps:
            fields = {"track": self._prefix_track(track), "writer": self._writer_fields}
            last.describe(encode_json({**fields, "name": name, "id": run_id, "meta": meta}))

    def _write_run(self) -> None:
        if self._run is not None and self.emitter is not None:
            (name, meta, run_id), self._run = self._run, None
            self.emitter.run(name, meta, id=run_id)
        if self._profile_marks and self.emitter is not None:
            marks, self._profile_marks = self._profile_marks, []
            for name, at in marks:
                self.emitter.event("mark", name, t=at, path=OWN_PROFILE_MARK)

    def _is_initial_prefill(self, facts: CallFacts | None) -> bool:
        """Return whether a step is the prefill before all others: its number is 0, others count from 1."""
        return bool(facts and facts.phase == "prefill" and self.steps == 0 and self.process is None)

    def _prefix_track(self, track: str | None) -> str | None:
        """Return a track below the name of the process."""
        if self.process is None:
            return track
        return f"{self.process} / {track}" if track else self.process


def _find_rank_number() -> int | None:
    """Return the rank of a launch other than torchrun's, as by torch.multiprocessing.spawn; None if alone."""
    setting = os.environ.get("RANK", "")
    if setting.isdecimal():
        return int(setting)
    distributed = sys.modules.get("torch.distributed")
    with suppress(Exception):  # builds of torch without it lack these functions
        if distributed is not None and distributed.is_initialized() and distributed.get_world_size() > 1:
            return int(distributed.get_rank())
    return None


def _build_meta(module: Any) -> dict[str, Any]:
    torch = sys.modules["torch"]
    meta = {
        "model": find_model_name(module),
        "driver": "PyTorch, attached",
        "torch": str(getattr(torch, "__version__", "")),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "device": find_device_type(module),
        "argv": list(getattr(sys, "argv", [])),
        "pid": os.getpid(),
    }
    if process_notes.read_setting(process_notes.DETAIL_VARIABLE) in ("layers", "steps"):
        meta["detail"] = process_notes.read_setting(process_notes.DETAIL_VARIABLE)
    with suppress(Exception):  # a module may be of any kind; what cannot be read is unknown
        meta.update(_read_work(module, torch))
    return {key: value for key, value in meta.items() if value is not None}


def find_model_name(module: Any) -> str | None:
    """Return the type of a model, also if torch.compile wraps it; None of a layer of torch.

    Programs without a model call such layers.
    """
    module = getattr(module, "_orig_mod", module)
    is_layer = type(module).__module__.startswith("torch.nn.") and not any(True for _ in module.children())
    return None if is_layer else type(module).__name__


def _read_work(module: Any, torch: Any) -> dict[str, Any]:
    """Return the sizes, number format, kind of attention and threads of a model."""
    counts: dict[str, int] = {}  # by number format
    for parameter in module.parameters():
        name = str(parameter.dtype).replace("torch.", "")
        counts[name] = counts.get(name, 0) + parameter.numel()
    config = getattr(module, "config", None)
    meta = {
        "dtype": max(counts, key=lambda name: counts[name]) if counts else None,
        "parameters": sum(counts.values()) or None,  # frozen ones are constants
        "layers": _read_number(config, "num_hidden_layers"),
        "d_model": _read_number(config, "hidden_size"),
        "attention": getattr(config, "_attn_implementation", None),
        "quant": _find_quantisation(module, config),
        "compiled": _is_compiled(module),
        "autograd": torch.is_grad_enabled(),
        "train mode": bool(module.training),
        "autocast": _find_autocast(torch, find_device_type(module)),
        "memory format": _find_memory_format(module, torch),
        "threads": torch.get_num_threads(),
        "transformers": getattr(sys.modules.get("transformers"), "__version__", None),
    }
    plain = {key: value for key, value in meta.items() if isinstance(value, (str, int))}
    sizes = read_config_sizes(config)
    return {**plain, "config": {"dtype": meta["dtype"], **sizes}} if sizes else plain


def read_config_sizes(config: Any) -> dict[str, Any]:
    """Return the sizes and the quantisation in a model's config by the keys of config.json; empty without."""
    with suppress(Exception):  # a config may be of any kind
        document = config.to_dict()
        text = document.get("text_config")
        document = {**document, **(text if isinstance(text, dict) else {})}
        sizes = {key: document[key] for key in CONFIG_KEYS if document.get(key) is not None}
        encode_json(sizes)  # so that the recording can be written
        return sizes
    return {}


def _read_number(config: Any, key: str) -> int | None:
    value = getattr(config, key, None)
    return value if type(value) is int else None


def _find_quantisation(module: Any, config: Any) -> str:
    """Return the method of a quantised model: as its config has it, else the package of its layers."""
    settings = getattr(config, "quantization_config", None)
    if settings is not None:
        method = settings.get("quant_method") if isinstance(settings, dict) else settings.quant_method
        return str(getattr(method, "value", method))
    for each in module.modules():
        for package in _QUANTISED_PACKAGES:
            if type(each).__module__.startswith(package):
                return package
    return "none"


def _find_autocast(torch: Any, device: str) -> str | None:
    """Return the number format that torch casts products to, or none; None if it does not say."""
    with suppress(Exception):  # before torch 2.4 it was asked in another way for each device
        is_on = torch.is_autocast_enabled(device)
        return str(torch.get_autocast_dtype(device)).replace("torch.", "") if is_on else "none"
    return None


def _find_memory_format(module: Any, torch: Any) -> str | None:
    """Return the order in which the weights of images lie in memory; None without such weights.

    A convolution of one pixel lies in both orders.
    """
    for weight in module.parameters():
        if weight.dim() == 4:
            is_last = weight.is_contiguous(memory_format=torch.channels_last)
            if is_last != weight.is_contiguous():
                return "channels last" if is_last else "channels first"
    return None


def _is_compiled(module: Any) -> bool:
    """Return whether torch.compile wraps the model: the module, its call or its forward."""
    wrapped = module, module.forward, getattr(module, "_compiled_call_impl", None)
    return any(type(each).__name__ == "OptimizedModule" or hasattr(each, _COMPILED_MARK) for each in wrapped)
