"""One program that is recorded, and measures by its own clock what that costs it; see recorded.py.

    python -m tests.bench._recorded_program NAME PAIRS BACKEND

run as it is recorded it prints its figures as JSON, run alone the graphs that were compiled.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import torch
from torch import nn

from tracetui.process import DETAIL_VARIABLE

BLOCK_NS: Final = 400_000_000  # of CPU time, about, of one block of steps, which ends by writing them
WARM: Final = 12  # steps before anything is measured
WINDOWS: Final = 4  # that are measured, the first one apart
LONGEST_NS: Final = 15_000_000_000  # of CPU time that are spent on waiting for them
WIDTH, LAYERS, WORDS = 768, 8, 1000
SMALL_WIDTH: Final = 320  # with which a step takes some 4 ms
TINY_WIDTH: Final = 224  # and some 2 ms


class Block(nn.Module):
    """A layer with as many modules as those of today's models, without their attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down, self.act = nn.Linear(2 * width, width, bias=False), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.input_norm(x)
        x = x + self.o(self.q(inner) * self.k(inner) + self.v(inner))
        inner = self.norm(x)
        return x + self.down(self.act(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    """A decoder; `breaks` has its graph fall into two when it is compiled."""

    def __init__(self, *, breaks: bool, width: int = WIDTH) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.layers = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.breaks = breaks

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for number, layer in enumerate(self.layers):
            if self.breaks and number == LAYERS // 2:
                torch._dynamo.graph_break()
            x = layer(x)
        return torch.as_tensor(self.head(x))


def decode(
    backend: str, *, breaks: bool = False, fullgraph: bool | None = None, width: int = WIDTH
) -> Callable[[], object]:
    """Return a step of decoding, eager or compiled."""
    model: Any = Decoder(breaks=breaks, width=width)
    call = model if fullgraph is None else torch.compile(model, fullgraph=fullgraph, backend=backend)
    ids = torch.ones(1, 1, dtype=torch.long)

    @torch.no_grad()
    def step() -> object:
        return call(ids).argmax(-1).item()

    return step


class Idle(nn.Module):
    """A tree of modules that compute nothing: what a step takes is calling them."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(inner)
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def call_idle(layers: int) -> Callable[[], object]:
    """Return a step with 13 calls for each layer and one more."""
    model = Idle(*(Idle(*(Idle() for _ in range(12))) for _ in range(layers)))
    ids = torch.ones(1, 1, dtype=torch.long)
    return torch.no_grad()(lambda: model(ids))


def train(backend: str) -> Callable[[], object]:
    """Return a step of training."""
    model = Decoder(breaks=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ids = torch.ones(2, 8, dtype=torch.long)

    def step() -> object:
        loss = model(ids).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return None

    return step


def generate(backend: str) -> Callable[[], object]:
    """Return a step that is a whole answer of a small model of transformers."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=12, num_key_value_heads=4, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model: Any = Qwen2ForCausalLM(config).eval()
    ids = torch.ones(1, 8, dtype=torch.long)
    return lambda: model.generate(ids, max_new_tokens=8, do_sample=False)


MAKERS: Final[dict[str, Callable[[str], Callable[[], object]]]] = {
    "decode": decode,
    "small": lambda backend: decode(backend, width=SMALL_WIDTH),
    "tiny": lambda backend: decode(backend, width=TINY_WIDTH),
    "idle": lambda backend: call_idle(8),
    "idle4": lambda backend: call_idle(4),
    "train": train,
    "generate": generate,
    "compiled": lambda backend: decode(backend, breaks=True, fullgraph=False),
    "fullgraph": lambda backend: decode(backend, fullgraph=True),
}


class Watched:
    """The watcher of this process, to be switched off and on."""

    def __init__(self) -> None:
        (self._watcher,) = sys.modules["_tracetui_capture.record.patches"]._RECORDERS  # type: ignore[attr-defined]
        self._ours: Any = nn.Module.__call__

        self._plain = self._ours.__globals__["original"]
        self.windows = self._watcher.shared.windows
        self.duty = self.windows._budget

    def switch(self, on: bool) -> None:
        """Have modules called with us or without; the step that is open ends here."""
        self.end_step()
        self._watcher.is_off = not on
        nn.Module.__call__ = self._ours if on else self._plain  # type: ignore[method-assign]

    def end_step(self) -> None:
        """Make steps of all calls so far, and write them."""
        for thread in self._watcher._threads:
            thread.close(time.perf_counter_ns())
        self._watcher.shared.recording.write_waiting()

    @contextmanager
    def without_windows(self) -> Iterator[None]:
        """Open no window meanwhile."""
        due, self.duty.next_at = self.duty.next_at, sys.maxsize
        try:
            yield
        finally:
            self.duty.next_at = due


def block(step: Callable[[], object], count: int, end: Callable[[], object] = int) -> tuple[int, int]:
    """Return what so many steps and the writing of them take, of CPU and of the wall clock, in ns."""
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    for _ in range(count):
        step()
    end()
    return time.process_time_ns() - cpu, time.perf_counter_ns() - wall


def windows_cost(watched: Watched, step: Callable[[], object]) -> tuple[list[float], float]:
    """Return what each of the first windows adds to the CPU time of its steps, in ns, and what part they take
    of the time between the first and the last: each is followed by a pause as long as it was dear.

    A window begins with a step and is read as the next one begins.
    """
    took: list[int] = []
    opened: list[int] = []
    while len(opened) < WINDOWS and sum(took) < LONGEST_NS:
        count = watched.duty.windows
        took.append(block(step, 1)[0])
        if watched.duty.windows > count:
            opened.append(len(took) - 1)
    beside = {n for end in opened for n in (end - 1, end)}
    usual = median(t for n, t in enumerate(took) if n not in beside)
    costs = [float(sum(took[end - 1 : end + 1]) - 2 * usual) for end in opened]
    between = usual * (opened[-1] - opened[0]) if len(opened) > 1 else took[0] * len(took)
    return costs, sum(costs[:-1] or costs) / between


def measure(name: str, pairs: int, backend: str) -> dict[str, Any]:
    """Return the figures of one program."""
    watched, step = Watched(), MAKERS[name](backend)
    with watched.without_windows():
        for _ in range(WARM):
            step()
        count = max(1, BLOCK_NS // max(1, block(step, 4)[0] // 4))
        watched.switch(False)
        before = [block(step, count)[0] / count for _ in range(max(3, pairs // 3))]
    watched.switch(True)
    has_windows = os.environ.get(DETAIL_VARIABLE, "full") == "full"
    costs, share = windows_cost(watched, step) if has_windows else ([], 0.0)
    ratios: list[tuple[float, float]] = []
    alone: list[float] = []
    added: list[float] = []
    order = random.Random(name)
    with watched.without_windows():
        for _ in range(pairs):
            taken: dict[bool, tuple[int, int]] = {}
            for on in order.sample((False, True), 2):
                watched.switch(on)
                taken[on] = block(step, count, watched.end_step)
            alone.append(taken[False][0] / count)
            added.append((taken[True][0] - taken[False][0]) / count)
            ratios.append((taken[True][0] / taken[False][0], taken[True][1] / taken[False][1]))
    return {
        "step_ns": median(alone), "ratios": ratios, "windows_ns": costs, "windows_share": share,
        "added_ns": added, "after_a_window": median(alone) / median(before),
    }  # fmt: skip


def main() -> None:
    name, pairs, backend = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "_tracetui_capture.record.patches" in sys.modules:
        told = measure(name, pairs, backend)
    else:
        told = {}
        step = MAKERS[name](backend)
        for _ in range(WARM):
            step()
    counters = torch._dynamo.utils.counters  # type: ignore[attr-defined]
    print(json.dumps({**told, "graphs": [dict(counters["stats"]), dict(counters["graph_break"])]}))


if __name__ == "__main__":
    main()
