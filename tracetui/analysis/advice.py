"""What to record with, so that a source tells next time what it lacks now. Nothing that was on already."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from capture.run import Run

_OFF: Final = ("", "0", "false")


class Advice(NamedTuple):
    """How to get what is lacking; `option` of torch.profiler does it, where that was on, `instead` does."""

    how: str
    option: str = ""
    instead: str = ""


_BESIDE: Final = "the capture of its graph beside the trace (--capture)"
SHAPES: Final = Advice(
    "operand shapes: torch.profiler with record_shapes=True",
    "record_shapes",
    f"operand shapes: record_shapes was on; a graph's replay tells none, so record {_BESIDE}",
)
_SCOPES: Final = "scopes: record_function or NVTX ranges"
_LAYERS: Final = "layers: record_function('layers.3') or NVTX ranges around modules"
_NEXT: Final = {
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


def was_on(run: Run, option: str) -> bool:
    """Tell whether the source states that it was recorded with an option of torch.profiler."""
    stated = run.tables.get("trace")
    if not option or stated is None or not {"key", "value"} <= set(stated.columns):
        return False
    values = stated.filter(key=option)["value"].to_list()
    return bool(values) and str(values[0]).lower() not in _OFF


def told(run: Run, advice: Advice) -> str:
    """Return what to do for something that the run lacks."""
    return advice.instead if was_on(run, advice.option) else advice.how


def for_work(run: Run, *, experts: bool) -> str:
    """Return what would tell the work of an op, perhaps of a mixture's experts, that no model knows."""
    if not run.meta.get("captured"):
        return told(run, SHAPES)
    what = "how many experts a token takes and how wide they are" if experts else "the sizes of its operands"
    return f"an operator among whose operands stands {what}: the one in the capture does not tell"


def next_time(run: Run, lacking: Iterable[str]) -> list[str]:
    """Return what to record with for each need that the run does not meet, as far as that is known."""
    return [told(run, _NEXT[need]) for need in dict.fromkeys(lacking) if need in _NEXT]
