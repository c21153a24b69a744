"""Advise what to record so that the next source has what this one lacks; never an option that was on."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from capture.run import Run

_OFF: Final = ("", "0", "false")

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
    f"operand shapes: record_shapes was on; graph replays have none, so record {_GRAPH_CAPTURE}",
)
_BY_NEED: Final = {
    "t": Advice("start times: a trace (torch.profiler export_chrome_trace, nsys export --type sqlite)"),
    "step": Advice(
        "steps: call prof.step() in the loop, or mark each step with record_function or an NVTX range"
    ),
    "layer": Advice(f"{_LAYERS}, or with_modules=True", "with_modules", _LAYERS),
    "phase": Advice("phases: record_function('prefill') and ('decode') or NVTX ranges of these names"),
    "context": Advice("context lengths: a native recording (tracetui record), whose step rows carry them"),
    "tokens": Advice("tokens of each step: a native recording (tracetui record)"),
    "shape": SHAPES,
    "counter rows": Advice("counters: tracetui record, or nsys profile --gpu-metrics-devices=all"),
    "memory rows": Advice(
        "memory: torch.profiler with profile_memory=True",
        "profile_memory",
        "memory: profile_memory was on and nothing was allocated; record while requests arrive",
    ),
    "path or t": Advice(f"{_SCOPES}, or torch.profiler with_stack=True", "with_stack", _SCOPES),
    "dur": Advice("durations: a profile with kernel times"),
}


def has_option_on(run: Run, option: str) -> bool:
    """True if the source reports that it was recorded with an option of torch.profiler."""
    reported = run.tables.get("trace")
    if not option or reported is None or not {"key", "value"} <= set(reported.columns):
        return False
    values = reported.filter(key=option)["value"].to_list()
    return bool(values) and str(values[0]).lower() not in _OFF


def format_advice(run: Run, advice: Advice) -> str:
    """Return the instruction for data that the run lacks."""
    return advice.instead if has_option_on(run, advice.option) else advice.how


def suggest_for_work(run: Run, *, experts: bool) -> str:
    """Return the data that would show the work of an op without a model, perhaps of a mixture's experts."""
    if not run.meta.get("captured"):
        return format_advice(run, SHAPES)
    experts_text = "how many experts a token takes and how wide they are"
    missing = experts_text if experts else "the sizes of its operands"
    return f"an operator whose operands include {missing}: the one in the capture does not"


def suggest_recording(run: Run, needs: Iterable[str]) -> list[str]:
    """Return recording instructions for the needs that the run does not meet, as far as known."""
    return [format_advice(run, _BY_NEED[need]) for need in dict.fromkeys(needs) if need in _BY_NEED]
