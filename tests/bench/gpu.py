"""Decode on a GPU at batch 1: granular, fused, in a graph, in four bits; beside compiled PyTorch.

    python -m tests.bench.gpu [MODEL …] [--steps 64] [--rounds 5] [--no-peer]

Real shapes, random weights, one run: every figure is a median over rounds in which all take turns, and is
set against the copy bandwidth measured in the same round. Without a GPU it says so and measures nothing.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from capture.native.emit import now
from engines.decoder import Decoder
from engines.fused.fused_step import explain_refusal
from engines.fused.run_ahead import RunAhead
from engines.host.op_runners import OpTimestamps
from engines.models.catalogue import find_preset
from engines.models.spec import Spec, count_parameters
from engines.token_sampling import GREEDY
from engines.weights import matrix_storage
from engines.weights.low_bit import QUANT_FORMATS
from engines.weights.quantised_storage import QuantisedStorage
from engines.weights.weight_sources import RandomWeights
from tests.bench.decode import transformers_model

MODELS = ("gemma-3-1b", "llama-3.2-1b", "qwen2.5-0.5b")
PROMPT, CAPACITY, AHEAD = 64, 1024, 8
COPIED = 1 << 30

Steps = Callable[[int], object]  # so many steps, waited for at the end


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for name in args.models:
        with torch.inference_mode():
            compare(find_preset(name), args.steps, args.rounds, peer=not args.no_peer)
        gc.collect()
        torch.cuda.empty_cache()


def compare(spec: Spec, steps: int, rounds: int, *, peer: bool) -> None:
    device = torch.device("cuda")
    plain = Decoder(spec, RandomWeights(spec, 0), matrix_storage.BF16, device, capacity=CAPACITY)
    granular = Decoder(
        spec, RandomWeights(spec, 0), matrix_storage.BF16, device, capacity=CAPACITY, fused=False
    )
    four = QuantisedStorage(QUANT_FORMATS["q4f16_1"], device)
    coded = Decoder(spec, RandomWeights(spec, 0), four, device, capacity=CAPACITY)
    bf16, four_bits = 2.0 * count_parameters(spec), count_parameters(spec) * four.weight_bytes
    ways: dict[str, tuple[Steps, float]] = {"granular": (eager(granular), bf16)}
    if why := explain_refusal(spec, GREEDY, device):
        print(f"  no fused kernels: {why}")
    else:
        for name, decoder, mode, graph, moved in (
            ("fused", plain, "spans", False, bf16), ("fused, graph", plain, "spans", True, bf16),
            ("fused, graph, bare", plain, "off", True, bf16),
            ("fused, graph, windows", plain, "windows", True, bf16),
            ("q4f16_1, graph", coded, "spans", True, four_bits),
        ):  # fmt: skip
            ways[name] = (ahead(RunAhead(decoder, GREEDY, mode, uses_graph=graph), AHEAD), moved)
        single = RunAhead(plain, GREEDY, "off", uses_graph=True)
        ways["fused, graph, bare, one a report"] = (ahead(single, 1), bf16)
    if peer:
        ways |= {name: (step, bf16) for name, step in peers(spec)}
    took: dict[str, list[float]] = {name: [] for name in ways}
    copied: list[float] = []
    for _ in range(rounds):
        copied.append(copy_rate(device))
        for name, (run, _) in ways.items():
            took[name].append(seconds(run, steps) / steps)
    table(spec, ways, took, statistics.median(copied))


def seconds(run: Steps, steps: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    run(steps)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def table(
    spec: Spec, ways: dict[str, tuple[Steps, float]], took: dict[str, list[float]], copied: float
) -> None:
    print(f"\n{spec.name}: memory copied at {copied / 1e9:.0f} GB/s (read and written)")
    ours = statistics.median(took.get("fused, graph", took["granular"]))
    for name, (_, moved) in ways.items():
        median = statistics.median(took[name])
        print(
            f"  {name:34}{1 / median:8.1f} tok/s{moved / median / 1e9:8.0f} GB/s"
            f"{moved / median / copied:6.2f} of copy   fused in a graph is {median / ours:5.2f}×"
        )


def copy_rate(device: torch.device) -> float:
    """Bytes read and written a second."""
    source = torch.ones(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    best = min(seconds(lambda n: [target.copy_(source) for _ in range(n)], 10) for _ in range(3)) / 10
    return 2 * COPIED / best


def prefilled(decoder: Decoder) -> None:
    decoder.set_input(torch.arange(PROMPT, device=decoder.state.ids.device)[None], 0)
    for op in decoder.ops:
        op()


def eager(decoder: Decoder) -> Steps:
    """Op by op, each token waited for."""
    prefilled(decoder)

    def run(steps: int) -> None:
        for i in range(steps):
            decoder.set_input(decoder.sampler.token[:, None], PROMPT + i)
            for op in decoder.ops:
                op()
            int(decoder.sampler.token[0])

    run(3)
    return run


def ahead(replay: RunAhead, block: int) -> Steps:
    """In blocks of tokens that are queued at once, and the first of the next block with them."""
    replay.warm_up(PROMPT)
    replay.set_input(torch.zeros(1, dtype=torch.long, device="cuda"), PROMPT)
    at = PROMPT

    def run(steps: int) -> None:
        nonlocal at
        for _ in range(0, steps, block):
            if at + block >= 511:
                replay.drop_queued_steps()
                at = PROMPT
                replay.set_input(torch.zeros(1, dtype=torch.long, device="cuda"), at)
            replay.run(OpTimestamps(now()), at, block, queue_next=True)
            replay.forget_times()
            at += block

    run(AHEAD)
    return run


def peers(spec: Spec) -> list[tuple[str, Steps]]:
    """transformers with a static cache, eager and compiled in the manner of gpt-fast."""
    if not (found := transformers_model(spec)):
        return []
    model, config = found
    model = model.to("cuda")
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    return [
        ("transformers, static cache", static(model, config)),
        ("transformers, static cache, compiled", static(compiled, config)),
    ]


def static(model: Any, config: Any) -> Steps:
    import transformers

    cache = transformers.StaticCache(config=config, max_cache_len=CAPACITY)
    ids = torch.arange(PROMPT, device="cuda")[None]
    position = torch.arange(PROMPT, device="cuda")
    eager_model = getattr(model, "_orig_mod", model)
    logits = eager_model(ids, past_key_values=cache, cache_position=position).logits
    token = logits[:, -1:].argmax(-1)
    at = torch.tensor([PROMPT], device="cuda")

    def run(steps: int) -> None:
        nonlocal token
        for _ in range(steps):
            out = model(token.clone(), past_key_values=cache, cache_position=at)
            token = out.logits[:, -1:].argmax(-1)
            int(token)

    run(5)
    return run


if __name__ == "__main__":
    main()
