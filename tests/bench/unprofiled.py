"""Whether a profiled step tells its unprofiled time: events × the cost of an event, on 40 programs.

    python -m tests.bench.unprofiled [--rounds 5]

Ten small models, each under torch.profiler with and without shapes and stacks. In turn, in one process, steps
run unprofiled and profiled, and so do two loops, one of ops and one of Python functions: they tell what an
event costs at this moment. All times are CPU time of the thread, which other programs change less than a wall
time. Predicted is a profiled step less its events at these costs. Events of a model are found to cost up to
three times those of a loop, so that a summary states no unprofiled time of a trace.
"""

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

STEP_NS: Final = 30_000_000  # of CPU time, about, of the steps that are timed at once
LIMIT: Final = 0.05
KINDS: Final = ("cpu_op", "python_function")
SETTINGS: Final = ((False, False), (False, True), (True, False), (True, True))  # stacks, shapes


class Layer(nn.Module):
    """A layer of a transformer with four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + torch.as_tensor(self.down(nn.functional.silu(self.up(self.norms[1](x)))))


def stack(layers: int, make: Callable[[], nn.Module], *shape: int) -> Callable[[], object]:
    """Return a step: so many layers, called with random numbers."""
    model, x = nn.Sequential(*(make() for _ in range(layers))).eval(), torch.randn(*shape)
    return torch.no_grad()(lambda: model(x))


def make_mlp(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))


def make_conv(width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())


MAKERS: Final[dict[str, Callable[[], Callable[[], object]]]] = {
    "tiny decoder": lambda: stack(2, lambda: Layer(64), 1, 1, 64),
    "decoder": lambda: stack(8, lambda: Layer(256), 1, 1, 256),
    "wide decoder": lambda: stack(4, lambda: Layer(768), 1, 1, 768),
    "prompt": lambda: stack(4, lambda: Layer(256), 1, 128, 256),
    "batch of prompts": lambda: stack(2, lambda: Layer(128), 8, 32, 128),
    "tiny mlp": lambda: stack(24, lambda: make_mlp(64), 1, 64),
    "mlp": lambda: stack(12, lambda: make_mlp(256), 8, 256),
    "wide mlp": lambda: stack(6, lambda: make_mlp(1024), 4, 1024),
    "tiny convolutions": lambda: stack(16, lambda: make_conv(8), 1, 8, 8, 8),
    "convolutions": lambda: stack(8, lambda: make_conv(32), 1, 32, 32, 32),
}
ONE: Final = torch.ones(1, 1)


def run_ops() -> None:
    for _ in range(150):
        nn.functional.linear(torch.add(ONE, ONE.view(1, 1)), ONE)


def run_functions() -> None:
    for _ in range(300):
        call_inner()


def call_inner() -> None:
    call_innermost()


def call_innermost() -> None:
    return None


def time_call(call: Callable[[], object], count: int) -> float:
    """Return the median CPU time of a call, in ns."""
    times = []
    for _ in range(count):
        start = time.thread_time_ns()
        call()
        times.append(time.thread_time_ns() - start)
    return median(times)


def count_events(profiler: Any, names: list[str]) -> dict[str, Counter[str]]:
    """Return the number of events of each kind in the last range of each name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = [e for e in json.loads(path.read_bytes())["traceEvents"] if e.get("ph") == "X"]
    counts = {}
    for name in names:
        last = max((e for e in events if e["name"] == name), key=lambda e: e["ts"])
        inner = (
            e for e in events if last["ts"] <= e["ts"] and e["ts"] + e["dur"] <= last["ts"] + last["dur"]
        )
        counts[name] = Counter(e["cat"] for e in inner if e["cat"] in KINDS)
    return counts


def predict(
    step: Callable[[], object], stacks: bool, shapes: bool, rounds: int
) -> tuple[float, float, float]:
    """Return the unprofiled time of a step in ns, the profiled over it, and the predicted over it."""
    calls = {"step": step, "ops": run_ops, "functions": run_functions}
    for _ in range(5):
        step()
    count = max(5, min(40, int(STEP_NS / time_call(step, 5))))
    counts: dict[str, Counter[str]] = {}
    rows = []
    for _ in range(rounds):
        plain = {name: time_call(call, count) for name, call in calls.items()}
        with profile(activities=[ProfilerActivity.CPU], with_stack=stacks, record_shapes=shapes) as profiler:
            step()
            watched = {name: time_call(call, count) for name, call in calls.items()}
            for name, call in calls.items():
                with record_function(name):
                    call()
        counts = counts or count_events(profiler, list(calls))
        added = {name: watched[name] - plain[name] for name in calls}
        of_function = added["functions"] / counts["functions"]["python_function"] if stacks else 0.0
        of_op = (added["ops"] - of_function * counts["ops"]["python_function"]) / counts["ops"]["cpu_op"]
        cost = of_op * counts["step"]["cpu_op"] + of_function * counts["step"]["python_function"]
        rows.append(
            (plain["step"], watched["step"] / plain["step"], (watched["step"] - cost) / plain["step"])
        )
    plain_ns, profiled, predicted = (median(values) for values in zip(*rows, strict=True))
    return plain_ns, profiled, predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, torch {torch.__version__}")
    predicted = []
    for name, make in MAKERS.items():
        for stacks, shapes in SETTINGS:
            torch.manual_seed(0)
            plain_ns, profiled, share = predict(make(), stacks, shapes, rounds)
            predicted.append(share)
            words = " ".join(word for word, on in (("stacks", stacks), ("shapes", shapes)) if on)
            ratios = f"profiled {profiled:.2f}×  predicted {share:.2f}×"
            print(f"{name:18}{words:14}{plain_ns / 1e3:9.0f} µs  {ratios}", flush=True)
    print(f"{sum(abs(share - 1) <= LIMIT for share in predicted)} of {len(predicted)} within {LIMIT:.0%}")


if __name__ == "__main__":
    main()
