"""Advise what to record so that the next source has what this one lacks; never an option that was on."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple

import polars as pl

from capture.run import Run
from tracetui.analysis.frames.selection import has_option_on, list_lenses

_GRAPH_CAPTURE: Final = "the capture of the graph next to the trace (--capture)"
_SCOPES: Final = "scopes: record_function or NVTX ranges"
_LAYERS: Final = "layers: record_function('layers.3') or NVTX ranges around modules"


class Advice(NamedTuple):
    """How to get missing data: `how`, or `instead` if torch.profiler's `option` for it was on."""

    how: str
    option: str = ""
    instead: str = ""


SHAPES: Final = Advice(
    "operand shapes: torch.profiler with record_shapes=True",
    "record_shapes",
    f"operand shapes: record_shapes was on; graph replays have none, so record {_GRAPH_CAPTURE}, "
    "or give the model's config.json (--config)",
)
_NO_MODEL: Final = "operand shapes: they are in the file, but the work of these operations has no model"
_NO_OPERATION: Final = "operand shapes: record_shapes was on, and no operation was recorded"
_CONTEXT: Final = Advice("context lengths: a native recording (tracetui record), whose step rows carry them")
_TOKENS: Final = Advice("tokens of each step: a native recording (tracetui record)")
_DURATIONS: Final = Advice("durations: a profile with kernel times")
_ANY: Final = {"context": _CONTEXT, "tokens": _TOKENS, "dur": _DURATIONS}
_TORCH: Final = _ANY | {
    "t": Advice("start times: a trace (torch.profiler export_chrome_trace)"),
    "step": Advice(
        "steps: a schedule and prof.step() in the loop, or record_function(f'step {i}') around it"
    ),
    "layer": Advice(f"{_LAYERS}, or with_modules=True", "with_modules", _LAYERS),
    "phase": Advice("phases: record_function('prefill') and ('decode')"),
    "shape": SHAPES,
    "counter rows": Advice("counters: tracetui record"),
    "memory rows": Advice(
        "memory: torch.profiler with profile_memory=True",
        "profile_memory",
        "memory: profile_memory was on and nothing was allocated; record while requests arrive",
    ),
    "path or t": Advice(f"{_SCOPES}, or torch.profiler with_stack=True", "with_stack", _SCOPES),
}
_NSYS: Final = _ANY | {
    "t": Advice("start times: nsys export --type sqlite of the report"),
    "step": Advice("steps: an NVTX range around each step"),
    "layer": Advice("layers: NVTX ranges around modules, such as layers.3"),
    "phase": Advice("phases: NVTX ranges named prefill and decode"),
    "counter rows": Advice("counters: nsys profile --gpu-metrics-devices=all"),
    "memory rows": Advice("memory: nsys profile --cuda-memory-usage=true"),
    "path or t": Advice("scopes: NVTX ranges, with nsys profile --trace=cuda,nvtx"),
}
_ROCPROF: Final = _ANY | {
    "t": Advice("start times: rocprofv3 --kernel-trace"),
    "step": Advice("steps: a roctx range around each step, with rocprofv3 --marker-trace"),
    "layer": Advice("layers: roctx ranges around modules, such as layers.3, with rocprofv3 --marker-trace"),
    "phase": Advice("phases: roctx ranges named prefill and decode, with rocprofv3 --marker-trace"),
    "counter rows": Advice("counters: rocprofv3 --pmc"),
    "memory rows": Advice("memory: rocprofv3 --memory-allocation-trace"),
    "path or t": Advice("scopes: roctx ranges, with rocprofv3 --marker-trace"),
}
_JAX: Final = _ANY | {
    "step": Advice(
        "steps: jax.profiler.StepTraceAnnotation('decode', step_num=i) around each step and its wait"
    ),
    "layer": Advice("layers: jax.named_scope('layers.3') around modules"),
    "phase": Advice("phases: jax.profiler.TraceAnnotation('prefill') and ('decode')"),
    "path or t": Advice("scopes: jax.named_scope, or jax.profiler.TraceAnnotation"),
}
_CONTEXT_OPTIONS: Final = {  # what begins the name of a server's step → how it states contexts, too
    "execute_": """vLLM's --profiler-config with "detailed_trace_annotation": true""",
    "step[": """SGLang's /start_profile with "detailed_annotations": true""",
}
_BY_FORMAT: Final = (("nsys", _NSYS), ("rocp", _ROCPROF), ("xplane", _JAX))  # what begins the format's name
_BY_PRODUCER: Final = (("pytorch", _TORCH), ("jax", _JAX), ("xla", _JAX))


def format_advice(run: Run, advice: Advice) -> str:
    """Return the instruction for data that the run lacks."""
    if not has_option_on(run, advice.option):
        return advice.how
    if advice is SHAPES and "gpu" not in list_lenses(run):
        return _NO_MODEL if list_lenses(run) else _NO_OPERATION
    return advice.instead


def suggest_contexts(run: Run) -> str | None:
    """Return the option with which a server's annotations state contexts, or None."""
    if run.has("context") or not run.has("batch"):
        return None
    steps = run.events.filter(pl.col("kind") == "step")["name"].head(1).cast(pl.String).to_list()
    options = (how for start, how in _CONTEXT_OPTIONS.items() if steps and str(steps[0]).startswith(start))
    return next(options, None)


def suggest_for_work(run: Run, *, experts: bool) -> str:
    """Return the data that would show the work of an op without a model, perhaps of a mixture's experts."""
    if not run.meta.get("captured"):
        return next(iter(suggest_recording(run, ["shape"])), "the shapes of its operands")
    experts_text = "how many experts a token takes and how wide they are"
    missing = experts_text if experts else "the sizes of its operands"
    return f"a capture whose operator states {missing}"


def suggest_recording(run: Run, needs: Iterable[str]) -> list[str]:
    """Return recording instructions for the needs that the run does not meet, as far as known."""
    advice = _choose_advice(run)
    return [format_advice(run, advice[need]) for need in dict.fromkeys(needs) if need in advice]


def _choose_advice(run: Run) -> Mapping[str, Advice]:
    """Choose the advice for the program that wrote the file; for an unknown one, that which fits any."""
    producer = str(run.meta.get("producer", "")).lower()
    by_format = (advice for start, advice in _BY_FORMAT if run.log.format.startswith(start))
    by_producer = (advice for word, advice in _BY_PRODUCER if word in producer)
    return next(chain(by_format, by_producer), _ANY)
