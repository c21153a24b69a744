"""What traces of torch's profiler say of their steps without it, beside what these take, on 40 programs.

    chrt -f 10 python -m tests.bench.unprofiled [--rounds 5] [--stacks]

Small random models of transformers, none of which had a part in the fit of the constants: texts, images,
tokens that are generated, training. In turn, steps run without the profiler, eight under it with its default
options, and again without. Each trace is opened as a user does, after what `doctor --measure` measures. A
step counts as predicted if the median over the rounds is within 5 % of the time measured around its trace.
Other programs disturb that time; with real-time priority they disturb it little.

On two cores with nothing else running, 39 of 40 were told within 5 %, with stacks 36, and 39 within their
intervals; under loads of 12 to 14 it was 37, with stacks 30, and again 39 within their intervals.
With shapes, inputs that are held cost page faults besides, inside the ops.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()  # for the cost that is measured first
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch.profiler import ProfilerActivity, profile, schedule

from capture.device_roofs import Roof, save_measured_roof
from capture.load_runs import load
from engines.host.measure_roofs import measure_profiler_cost_ns
from tracetui.analysis.time.step_sampling import estimate_unprofiled_step

LIMIT: Final = 0.05
STEPS: Final = 8  # under the profiler
STEP_S: Final = 0.03  # about, of the steps without it on either side

# what is done with a model: its types, each with the width and the number of layers
MODELS: Final = {
    "read": {
        "biogpt": (256, 3), "gpt_neox": (320, 3), "phi": (128, 6), "gemma": (512, 2), "mistral": (256, 3),
        "cohere2": (192, 4), "ernie4_5": (320, 3), "exaone4": (128, 6), "smollm3": (512, 2),
        "seed_oss": (192, 4), "arcee": (320, 3), "apertus": (512, 2), "roberta": (256, 3),
        "camembert": (192, 4), "mobilebert": (320, 3), "splinter": (512, 2), "layoutlm": (256, 3),
        "rembert": (192, 4), "data2vec-text": (320, 3), "ibert": (512, 2), "openai-gpt": (192, 4),
        "roc_bert": (128, 6), "markuplm": (512, 2), "bert-generation": (192, 4), "diffllama": (512, 2),
    },
    "see": {
        "vit": (256, 3), "poolformer": (512, 2), "mobilevit": (192, 4), "vit_mae": (128, 6),
        "vit_msn": (512, 2), "mobilenet_v1": (256, 3), "ijepa": (192, 4),
    },
    "generate": {
        "mistral": (256, 3), "gpt_neox": (320, 3), "biogpt": (128, 6), "phi": (512, 2), "smollm3": (256, 3),
    },
    "train": {"roberta": (256, 3), "mistral": (320, 3), "splinter": (256, 3)},
}  # fmt: skip


def build_model(kind: str, width: int, layers: int, auto: Any = transformers.AutoModel) -> Any:
    """Return a model of this type with random weights."""
    ids = {"vocab_size": 1000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 2 * width, "num_key_value_heads": 4, **ids}
    if kind in MODELS["see"]:
        sizes |= {"image_size": 64, "patch_size": 8}
        sizes = {name: value for name, value in sizes.items() if name not in (*ids, "num_key_value_heads")}
    return auto.from_config(transformers.AutoConfig.for_model(kind, **sizes)).eval()


def build_step(use: str, kind: str, width: int, layers: int) -> Callable[[], object]:
    """Return a function that does a step of a program."""
    auto = transformers.AutoModelForCausalLM if use == "generate" else transformers.AutoModel
    model = build_model(kind, width, layers, auto)
    ids, image = torch.randint(3, 900, (1, 16)), torch.randn(1, 3, 64, 64)
    if use == "train":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def train() -> None:
            optimizer.zero_grad()
            model(ids)[0].square().mean().backward()
            optimizer.step()

        return train
    settings = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    mask = torch.ones_like(ids)
    return torch.no_grad()(
        (lambda: model.generate(ids, attention_mask=mask, **settings)) if use == "generate"
        else (lambda: model(image)) if use == "see"
        else (lambda: model(ids))
    )  # fmt: skip


def time_steps(step: Callable[[], object], count: int) -> float:
    """Return the median time of a step, in ns."""
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - start)
    return median(times)


def record_trace(step: Callable[[], object], path: Path, *, stacks: bool) -> None:
    plan = schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    cpu = [ProfilerActivity.CPU]
    with profile(activities=cpu, with_stack=stacks, schedule=plan) as profiler:
        for _ in range(STEPS + 1):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


def compare(step: Callable[[], object], rounds: int, *, stacks: bool) -> list[tuple[float, ...] | None]:
    """Return for each round the time without the profiler in ns, and over it the profiled and told ones."""
    for _ in range(6):
        step()
    count = max(4, min(40, int(STEP_S * 1e9 / time_steps(step, 5))))
    results: list[tuple[float, ...] | None] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            step()
            before = time_steps(step, count)
            record_trace(step, path, stacks=stacks)
            real_ns = (before + time_steps(step, count)) / 2
            (run,) = load(path, cache=False)
            estimate = estimate_unprofiled_step(run)
        if estimate is None or estimate.unprofiled_ns is None:
            results.append(None)
        else:
            shares = (each / real_ns for each in (estimate.profiled_ns, *estimate.unprofiled_ns))
            results.append((real_ns, *shares))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stacks", action="store_true", help="with_stack=True")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    cost_ns = measure_profiler_cost_ns()
    save_measured_roof(Roof("cpu", "measured", 1.0, profiled_op_ns=cost_ns, host=platform.node()))
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, {cost_ns:.0f} ns an op of a loop")
    predicted = holding = told = programs = 0
    for use, models in MODELS.items():
        for kind, (width, layers) in models.items():
            torch.manual_seed(0)
            results = compare(build_step(use, kind, width, layers), args.rounds, stacks=args.stacks)
            programs += 1
            sure = [result for result in results if result is not None]
            name = f"{use} {kind} {width or ''}".strip()
            if len(sure) * 2 <= len(results):
                print(f"{name:26}unsure", flush=True)
                continue
            real, profiled, middle, low, high = (median(values) for values in zip(*sure, strict=True))
            told += 1
            predicted += abs(middle - 1) <= LIMIT
            holding += low <= 1 <= high
            text = f"profiled {profiled:.2f}×, said {middle:.3f}× ({low:.2f} to {high:.2f})"
            print(f"{name:26}{real / 1e3:9.0f} µs  {text}", flush=True)
    print(f"{predicted} of {told} within {LIMIT:.0%}, {holding} in the interval, {programs - told} unsure")


if __name__ == "__main__":
    main()
