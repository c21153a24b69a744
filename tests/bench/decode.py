"""Tokens a second of the bundled engine at batch 1, beside transformers and the machine's own reading speed.

    python -m tests.bench.decode [MODEL …] [--steps 16] [--rounds 3] [--no-peer] [--busy]

On a machine that others use, --busy runs one thread and counts processor seconds.

Real shapes, random weights. The peers take turns within a round; every figure is a median, every ratio is
of figures of the same run. The capture is priced by taking turns step by step: bare, spans, spans and file.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from capture.emit import Emitter, now
from engines import packing
from engines.decoder import Decoder
from engines.spec import Spec, parameters, preset, tensors
from engines.trace import Ledger, Ticks
from engines.weights import Chance

MODELS = ("gemma-3-1b", "llama-3.2-1b", "qwen2.5-0.5b")
PROMPT = 16
CPU = torch.device("cpu")

Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--busy", action="store_true")
    args = parser.parse_args()
    if args.busy:
        torch.set_num_threads(1)
        time.perf_counter = time.process_time
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in args.models:
        with torch.inference_mode():
            compare(preset(name), args.steps, args.rounds, peer=not args.no_peer)
        gc.collect()


def compare(spec: Spec, steps: int, rounds: int, *, peer: bool) -> None:
    chosen, _ = packing.fastest(spec, "auto", CPU)
    ours = Ours(spec, chosen.packing)
    runners: dict[str, Step] = {f"ours, {chosen.packing.name}": ours.bare}
    if peer and (theirs := transformers_step(spec)):
        runners["transformers eager bf16"] = theirs
    took: dict[str, list[float]] = {name: [] for name in runners}
    read: list[float] = []
    for _ in range(rounds):
        for name, step in runners.items():
            read.append(packing.read_rate())
            took[name] += [seconds(step) for _ in range(steps)]
    table(spec, took, statistics.median(read))
    price(ours, steps * rounds)


def seconds(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def table(spec: Spec, took: dict[str, list[float]], read: float) -> None:
    moved = 2 * parameters(spec)
    print(f"\n{spec.name}: {moved / 1e6:.0f} MB a token, memory read at {read / 1e9:.1f} GB/s")
    ours = next(iter(took.values()))
    for name, all_of_them in took.items():
        median, best = statistics.median(all_of_them), min(all_of_them)
        print(
            f"  {name:26}{1 / median:7.2f} tok/s {moved / median / 1e9:6.1f} GB/s"
            f" {moved / median / read:5.2f} of read"
            f"   ours is {median / statistics.median(ours):4.2f}×"
            f"   (best {1 / best:6.2f} tok/s, {best / min(ours):4.2f}×)"
        )


def price(ours: "Ours", steps: int) -> None:
    """What the capture costs, a step of each kind after the other."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(ours, Path(folder) / "a.jsonl")
        ways: dict[str, Step] = {"bare": ours.bare, "spans": ours.spans, "spans and file": recording.step}
        took: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(steps):
            for j in range(len(ways)):
                name = list(ways)[(i + j) % len(ways)]
                took[name].append(seconds(ways[name]))
    bare = took["bare"]
    for name in ("spans", "spans and file"):
        ratios = [a / b for a, b in zip(took[name], bare, strict=True)]
        own = f", {recording.own / steps / 1e3:.0f} µs a step of its own" if name != "spans" else ""
        print(f"  capture: {name:16}{100 * (statistics.median(ratios) - 1):+6.2f} % of a step{own}")


class Ours:
    """The bundled decoder, a step at a time around the same positions."""

    def __init__(self, spec: Spec, way: packing.Packing) -> None:
        self.decoder = Decoder(spec, Chance(spec, 0), way, CPU, capacity=256)
        self.decoder.place(torch.arange(PROMPT)[None], 0)
        self.bare()

    def _next(self) -> None:
        at = PROMPT + self.decoder.state.at % 128
        self.decoder.place(self.decoder.sampler.token[:, None], at)

    def bare(self) -> None:
        for op in self.decoder.ops:
            op()
        self._next()

    def spans(self) -> Ticks:
        ticks = Ticks(now())
        ticks.run(self.decoder.ops)
        self._next()
        return ticks


@dataclass
class Recording:
    """Ours, written down as the engine writes it."""

    ours: Ours
    path: Path
    own: int = 0

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.path)
        self.numbers = Ledger(self.emitter).numbers(self.ours.decoder.rows())
        self.count = 0

    def step(self) -> None:
        ticks = self.ours.spans()
        began = now()
        self.count += 1
        ticks.write(self.emitter, self.numbers, step=self.count, phase="decode", context=20)
        self.emitter.step(self.count, ticks.at[0], ticks.end - ticks.at[0], tokens=1, context=20, batch=1)
        self.own += now() - began


def transformers_step(spec: Spec) -> Step | None:
    """One cached decode step of the same shapes in transformers, None where it is not installed."""
    try:
        import transformers
    except ImportError:
        print("  (transformers is not installed: no peer)")
        return None
    kind = {"gemma3_text": "Gemma3", "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[spec.family]
    text = "Text" if kind == "Gemma3" else ""
    config = getattr(transformers, f"{kind}{text}Config")(**fields(spec))
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
    source = Chance(spec, 0)
    table = {name: source.read(name) for name in tensors(spec)}
    model = model.to(torch.bfloat16).to_empty(device="cpu").eval()
    model.load_state_dict(table, strict=False, assign=True)
    model.tie_weights()
    rotary = type(model.model.rotary_emb)(config)
    model.model.rotary_emb = rotary
    cache = transformers.DynamicCache(config=config)
    token = model(torch.arange(PROMPT)[None], past_key_values=cache).logits[:, -1:].argmax(-1)

    def step() -> torch.Tensor:
        out: torch.Tensor = model(token, past_key_values=cache).logits[:, -1:].argmax(-1)
        return out

    return step


def fields(spec: Spec) -> dict[str, Any]:
    """The preset in transformers' words; rotary bases change no time."""
    return {
        "vocab_size": spec.vocab, "hidden_size": spec.hidden, "intermediate_size": spec.ffn,
        "num_hidden_layers": spec.layers, "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads, "head_dim": spec.head_dim, "tie_word_embeddings": spec.tied,
    }  # fmt: skip


if __name__ == "__main__":
    main()
