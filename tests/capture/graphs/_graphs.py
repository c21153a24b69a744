"""A small serving trace with the captures of its graphs, and what each kernel truly is.

Three layers; all products of the main stream run one kernel, so that no name tells which is which. Two
decode steps replay the graph of four requests (for three) and that of eight, whose shared product runs on a
second stream and one of whose kernels the trace has lost; a prompt of 50 tokens replays four pieces that were
captured for 64, with attention launched between them.

`python -m tests.capture.graphs._graphs` writes the files of tests/fixtures/chrome/replay.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import FIXTURES

LAYERS, HIDDEN, WIDE, WORDS = 3, 64, 256, 1000
FOLDER = FIXTURES / "chrome" / "replay"
TRACE = "decode-TP-0.trace.json"
BF16 = "c10::BFloat16"
GEMM, SIDE = "Cijk_Alik_Bljk_BBS_MT64x64", "Cijk_Alik_Bljk_BBS_MT16x16"
STEPS = {
    1: "execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk300sqsq3sqsk300)",
    2: "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk900sqsq8sqsk900)",
    3: "execute_50_context_2(sq50sk50sqsq1300sqsk1300)_generation_0(sq0sk0sqsq0sqsk0)",
}
REPLAYED = {1: 4, 2: 8, 3: 64}  # the rows that each step's graph was captured for
LOST = (2, 1, "act")  # step, layer and part of the kernel that the trace does not show


@dataclass(frozen=True)
class Part:
    """One kernel of the model: its part, layer, name, operator with operands, module, stream."""

    part: str
    layer: int | None
    kernel: str
    operator: str
    dims: list[list[int]]
    module: str
    stream: int = 1


@dataclass
class Truth:
    """What a kernel of the trace is: the step, the part of the model, and the rows it was captured for."""

    start: int  # µs
    step: int
    part: Part
    rows: int


@dataclass
class Made:
    """The events of every file, and the truth of the replayed kernels in order of start."""

    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    truth: list[Truth] = field(default_factory=list)


def model(rows: int) -> Iterator[Part]:
    """Yield the kernels of one forward pass in the order of their launches."""

    def product(part: str, layer: int | None, module: str, n: int, k: int, stream: int = 1) -> Part:
        kernel = GEMM if stream == 1 else SIDE
        return Part(part, layer, kernel, "aten::mm", [[rows, k], [k, n]], module, stream)

    words = [[WORDS, HIDDEN], [rows]]
    yield Part("embed", None, "vectorized_gather_kernel", "aten::gather", words, "Embedding_0")
    for i in range(LAYERS):
        layer, attn, mlp = f"DecoderLayer_{i}", f"DecoderLayer_{i}/Attention_{i}", f"DecoderLayer_{i}/MLP_{i}"
        norm = [[rows, HIDDEN], [rows, HIDDEN], [HIDDEN]]
        heads = [[rows, 4, 16], [rows, 2, 16], [rows, 2, 16], [5000, 16, 2, 16]]
        yield Part("norm", i, "rmsnorm_kernel", "aiter::rmsnorm", norm, f"{layer}/RMSNorm_{2 * i}")
        yield product("qkv", i, f"{attn}/QKVParallelLinear_{i}", 128, HIDDEN)
        yield Part("attn", i, "paged_attention_kernel", "vllm::unified_attention", heads, f"{attn}/Attn_{i}")
        yield product("out", i, f"{attn}/RowParallelLinear_{2 * i}", HIDDEN, HIDDEN)
        yield Part("norm2", i, "rmsnorm_kernel", "aiter::rmsnorm", norm, f"{layer}/RMSNorm_{2 * i + 1}")
        yield product("shared", i, f"{mlp}/Shared_{i}", 32, HIDDEN, stream=2)
        yield product("gate_up", i, f"{mlp}/MergedColumnParallelLinear_{i}", 2 * WIDE, HIDDEN)
        act = [[rows, WIDE], [rows, 2 * WIDE]]
        yield Part("act", i, "act_and_mul_kernel", "_C::silu_and_mul", act, f"{mlp}/SiluAndMul_{i}")
        yield product("down", i, f"{mlp}/RowParallelLinear_{2 * i + 1}", HIDDEN, WIDE)
    yield product("lm_head", None, "LogitsProcessor_0", WORDS, HIDDEN)


def pieces(rows: int) -> list[list[Part]]:
    """Return a forward pass cut at attention, which is left out: what a piecewise graph holds."""
    cut: list[list[Part]] = [[]]
    for part in model(rows):
        if part.part == "attn":
            cut.append([])
        else:
            cut[-1].append(part)
    return cut


def complete(cat: str, name: str, ts: int, dur: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def grid(part: Part) -> list[int]:
    """Return how many blocks a kernel runs in: more for larger operands."""
    return [1 + sum(map(sum, part.dims)), 1, 1]


def line(part: Part) -> str:
    """Return the function of the model that launches a part."""
    return f"engine/model.py(7): run_{part.part}"


def captured(rows: int, mode: str, graphs: list[list[Part]]) -> list[dict[str, Any]]:
    """Return the trace of a capture: no kernel runs, and one launch before the capture warms up."""
    events, t = [complete("cuda_runtime", "hipLaunchKernel", 20, 2, kernel="warm_up", grid=[1, 1, 1])], 100
    for number, graph in enumerate(graphs):
        events.append(complete("cuda_runtime", "hipStreamBeginCapture", t, 1))
        for i, part in enumerate(graph):
            t += 20
            for j, name in enumerate(("Model_0", *part.module.split("/"))):
                events.append(complete("python_function", f"nn.Module: {name}", t + j, 16 - 2 * j))
            events.append(complete("python_function", line(part), t + 3, 8))
            events.append(complete("python_function", "torch/_ops.py(1244): __call__", t + 4, 6))
            stated = {"Input Dims": part.dims, "Input type": [BF16] * len(part.dims), "Concrete Inputs": []}
            stated["External id"] = 1000 * number + i
            events.append(complete("cpu_op", part.operator, t + 4, 4, **stated))
            made = {"kernel": part.kernel, "grid": grid(part)}
            events.append(complete("cuda_runtime", "hipLaunchKernel", t + 5, 1, **made))
        t += 20
        events.append(complete("cuda_runtime", "hipStreamEndCapture", t, 1))
        t += 40
    return [complete("user_annotation", f"capture_{rows}_{mode}", 10, t), *events]


def replayed(made: Made) -> list[dict[str, Any]]:
    """Return the trace of the three steps; `made` gets the truth of its replayed kernels."""
    events: list[dict[str, Any]] = []
    for step, said in STEPS.items():
        t = 10_000 * step
        events.append(complete("user_annotation", said, t, 400))
        graphs = pieces(REPLAYED[step]) if step == 3 else [list(model(REPLAYED[step]))]
        at = {1: t + 500, 2: t + 500}
        for piece, graph in enumerate(graphs):
            launch, own = t + 10 + 40 * piece, 100 * step + 2 * piece
            events.append(complete("cuda_runtime", "hipGraphLaunch", launch, 5, correlation=own))
            for part in graph:
                start = at[part.stream] = max(at[part.stream], at[1] if part.stream == 2 else 0)
                at[part.stream] += 10
                if (step, part.layer, part.part) != LOST:
                    shown = {"pid": 0, "tid": part.stream}
                    events.append(complete("kernel", part.kernel, start, 7, correlation=own) | shown)
                    made.truth.append(Truth(start, step, part, REPLAYED[step]))
            if piece + 1 < len(graphs):
                events += eager_attention(launch + 20, own + 1, at)
    return events


def eager_attention(launch: int, own: int, at: dict[int, int]) -> list[dict[str, Any]]:
    """Return attention that is launched between two pieces, which the trace states by itself."""
    heads = [[50, 4, 16], [50, 2, 16], [50, 2, 16], [5000, 16, 2, 16]]
    stated = {"Input Dims": heads, "Input type": [BF16] * 4, "Concrete Inputs": []}
    start, at[1] = at[1], at[1] + 10
    ids = {"External id": own}
    return [
        complete("cpu_op", "vllm::unified_attention", launch, 10, **stated, **ids),
        complete("cuda_runtime", "hipLaunchKernel", launch + 2, 2, correlation=own, **ids),
        complete("kernel", "paged_attention_kernel", start, 7, correlation=own, **ids) | {"pid": 0, "tid": 1},
    ]


def make() -> Made:
    made = Made()
    made.files[TRACE] = replayed(made)
    for rows in (4, 8):
        made.files[f"capture_traces/bs_{rows}_rank0.json"] = captured(rows, "FULL", [list(model(rows))])
    made.files["capture_traces/bs_64_rank0.json"] = captured(64, "PIECEWISE", pieces(64))
    made.truth.sort(key=lambda truth: truth.start)
    return made


def document(events: list[dict[str, Any]]) -> str:
    """Return events as torch's profiler would title them, a line each."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    device = '{"id":0,"name":"AMD Instinct MI300X"}'
    return f'{{"schemaVersion":1,"deviceProperties":[{device}],"traceEvents":[\n{lines}\n]}}\n'


def write(folder: Path) -> Made:
    """Write all files; return what they show and what is true."""
    made = make()
    for name, events in made.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(document(events))
    return made


if __name__ == "__main__":
    write(FOLDER)
