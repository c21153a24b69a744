"""Tokens a second of the bundled engine at batch 1 in 16, 8 and 4 bits, beside transformers and llama.cpp.

    python -m tests.bench.decode [MODEL …] [--bits 16 8 4] [--steps 16] [--rounds 3] [--no-peer] [--busy]

llama.cpp is measured where $TRACETUI_LLAMA_CPP names an interpreter that has llama-cpp-python and gguf.
On a machine that others use, --busy runs one thread and counts processor seconds.

Real shapes, random weights. The peers take turns within a round; every figure is a median, every ratio is
of figures of the same run. The capture is priced by taking turns step by step: bare, spans, spans and file.
"""

import argparse
import dataclasses
import gc
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engines.__main__ import tune_process

tune_process()  # as the engine does, before torch is there

import torch  # noqa: E402

from capture.native.emit import Emitter, now  # noqa: E402
from engines import processor  # noqa: E402
from engines.decoder import Decoder  # noqa: E402
from engines.host.measure_roofs import QUICK_READ_S, BandwidthProbe, compute_sustained_rate  # noqa: E402
from engines.host.op_runners import OpTimestamps, PlanWriter  # noqa: E402
from engines.models.catalogue import find_preset  # noqa: E402
from engines.models.spec import Spec, count_parameters, list_tensors  # noqa: E402
from engines.processor.huge_pages import gather_into_pages  # noqa: E402
from engines.weights import fastest_storage, low_bit  # noqa: E402
from engines.weights.matrix_storage import Storage  # noqa: E402
from engines.weights.quantised_storage import QuantisedStorage  # noqa: E402
from engines.weights.weight_sources import RandomWeights  # noqa: E402

MODELS = ("gemma-3-1b", "llama-3.2-1b", "qwen2.5-0.5b")
FORMS = {8: "q8_0", 4: "q4f16_1"}
THEIRS = {16: "F16", 8: "Q8_0", 4: "Q4_0"}
PROMPT = 16
CPU = torch.device("cpu")
LLAMA_CPP = "TRACETUI_LLAMA_CPP"

Step = Callable[[], object]


class Peer(Protocol):
    """Somebody who decodes: bytes that a token reads, and the seconds of so many steps."""

    moved: float

    def took(self, steps: int) -> list[float]: ...


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--bits", type=int, nargs="+", default=(16, 8, 4), choices=(16, 8, 4))
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
            model(find_preset(name), args)
        gc.collect()


def model(spec: Spec, args: argparse.Namespace) -> None:
    """Every width in turn; what a width needs is let go before the next."""
    eager = None if args.no_peer else transformers_peer(spec)
    for bits in args.bits:
        ours = Ours(spec, chosen_storage(spec, bits))
        peers: dict[str, Peer] = {f"ours, {ours.way.name}": ours}
        if eager:
            peers["transformers eager bf16"] = eager
        if not args.no_peer and (theirs := llama_cpp_peer(spec, THEIRS[bits], busy=args.busy)):
            peers[f"llama.cpp {THEIRS[bits]}"] = theirs
        compare(spec, bits, peers, args.steps, args.rounds)
        if bits == 16:
            price(ours, args.steps * args.rounds)
        for peer in peers.values():
            if isinstance(peer, LlamaCpp):
                peer.close()
        del ours, peers
        gc.collect()


def chosen_storage(spec: Spec, bits: int) -> Storage:
    return (
        QuantisedStorage(low_bit.QUANT_FORMATS[FORMS[bits]], CPU)
        if bits in FORMS
        else fastest_storage.find_fastest_storage(spec, "auto", CPU)[0]
    )


def compare(spec: Spec, bits: int, peers: dict[str, Peer], steps: int, rounds: int) -> None:
    took: dict[str, list[float]] = {name: [] for name in peers}
    read: list[float] = []
    memory = BandwidthProbe(huge_pages=True)
    for peer in peers.values():
        peer.took(2)
    for _ in range(rounds):
        for name, peer in peers.items():
            read.append(compute_sustained_rate(memory.measure_passes(QUICK_READ_S)))
            took[name] += peer.took(steps)
    moved = {name: peer.moved for name, peer in peers.items()}
    table(f"{spec.name}, {bits} bit", moved, took, statistics.median(read))


def seconds(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def table(title: str, moved: dict[str, float], took: dict[str, list[float]], read: float) -> None:
    print(f"\n{title}: memory read at {read / 1e9:.1f} GB/s")
    ours = next(iter(took.values()))
    for name, all_of_them in took.items():
        median, best = statistics.median(all_of_them), min(all_of_them)
        print(
            f"  {name:26}{moved[name] / 1e6:6.0f} MB a token {1 / median:7.2f} tok/s"
            f" {moved[name] / median / 1e9:6.1f} GB/s {moved[name] / median / read:5.2f} of read"
            f"   ours is {median / statistics.median(ours):4.2f}×"
            f"   (best {1 / best:6.2f} tok/s, {best / min(ours):4.2f}×)",
            flush=True,
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

    def __init__(self, spec: Spec, way: Storage) -> None:
        self.way, self.decoder = way, Decoder(spec, RandomWeights(spec, 0), way, CPU, capacity=256)
        self.moved = count_parameters(spec) * way.weight_bytes
        for _ in gather_into_pages(
            processor.iter_weights()
        ):  # as an engine has it some seconds after its start
            pass
        self.decoder.set_input(torch.arange(PROMPT)[None], 0)
        self.bare()

    def _next(self) -> None:
        at = PROMPT + self.decoder.state.position % 128
        self.decoder.set_input(self.decoder.sampler.token[:, None], at)

    def bare(self) -> None:
        for op in self.decoder.ops:
            op()
        self._next()

    def took(self, steps: int) -> list[float]:
        return [seconds(self.bare) for _ in range(steps)]

    def spans(self) -> OpTimestamps:
        ticks = OpTimestamps(now())
        ticks.run_ops(self.decoder.ops)
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
        self.numbers = PlanWriter(self.emitter).assign_ids(self.ours.decoder.plan_step())
        self.count = 0

    def step(self) -> None:
        ticks = self.ours.spans()
        began = now()
        self.count += 1
        ticks.write(self.emitter, self.numbers, step=self.count, phase="decode", context=20)
        self.emitter.step(
            self.count, ticks.times[0], ticks.end - ticks.times[0], tokens=1, context=20, batch=1
        )
        self.own += now() - began


class LlamaCpp:
    """llama.cpp in an interpreter of its own, told how many steps to take."""

    def __init__(self, interpreter: str, spec: Spec, kind: str, clock: str) -> None:
        script = Path(__file__).with_name("_llama_cpp.py")
        shape = json.dumps(dataclasses.asdict(spec))
        self._process = subprocess.Popen(
            [interpreter, str(script), shape, kind, str(torch.get_num_threads()), clock],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.moved = float(self._answer()["bytes"])

    def took(self, steps: int) -> list[float]:
        assert self._process.stdin
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return [float(took) for took in self._answer()]

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline() or "null")


def llama_cpp_peer(spec: Spec, kind: str, *, busy: bool) -> LlamaCpp | None:
    """The same shapes in llama.cpp, None where no interpreter that has it is named."""
    interpreter = os.environ.get(LLAMA_CPP)
    if not interpreter:
        print(f"  (${LLAMA_CPP} names no interpreter: no llama.cpp)")
        return None
    return LlamaCpp(interpreter, spec, kind, "processor" if busy else "wall")


class Eager:
    """One cached decode step after the other in transformers."""

    def __init__(self, step: Step, moved: float) -> None:
        self._step, self.moved = step, moved

    def took(self, steps: int) -> list[float]:
        return [seconds(self._step) for _ in range(steps)]


def transformers_peer(spec: Spec) -> Eager | None:
    step = transformers_step(spec)
    return Eager(step, 2 * count_parameters(spec)) if step else None


def transformers_model(spec: Spec) -> tuple[Any, Any] | None:
    """The model of the same shapes in transformers, and its configuration; none where it is not installed."""
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
    source = RandomWeights(spec, 0)
    table = {name: source.read(name) for name in list_tensors(spec)}
    model = model.to(torch.bfloat16).to_empty(device="cpu").eval()
    model.load_state_dict(table, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model, config


def transformers_step(spec: Spec) -> Step | None:
    """One cached decode step of it."""
    if not (found := transformers_model(spec)):
        return None
    import transformers

    model, config = found
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
