"""Pairs of runs of a real program with one known difference each, and what `tracetui diff` says of them.

python -m tests.real.pairs PYTHON FOLDER make [NAME…]: record each variant of programs/decode.py in turn
python -m tests.real.pairs PYTHON FOLDER judge [NAME…]: print the first lines and count which are right

PYTHON has torch and transformers. Each variant is recorded by `tracetui record` and by torch.profiler, and
says by its own clocks what a step took. A judgement is right if the first lines name the difference, work
that differs has no verdict, no verdict points away from the program's own clock, and what is undecided is
smaller than the lines say that equal runs differ or these steps show.
"""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from capture.load_runs import load
from tests.real import PROGRAMS
from tracetui.compare.diff import Diff, compare_runs
from tracetui.compare.pairing.equal_work import UNEQUAL_WORK
from tracetui.compare.words.decision import describe_decision, select_main_phase
from tracetui.look import Look

# name of a pair: options of either side, what the first lines must name, whether steps compute something else
LOOP: Final = ("--sleep", "0")
GPT2: Final = ("--model", "gpt2")
COMPILE: Final = ("--compile",)
BF16: Final = ("--dtype", "bfloat16")
EAGER: Final = ("--attn", "eager")
LONG_GPT2: Final = (*GPT2, "--prompt", "512")
PAIRS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], str, bool]]] = {
    "nothing": ((), (), "", False),
    "batch 2": ((), ("--batch", "2"), "batch 1 and 2", True),
    "batch 4": ((), ("--batch", "4"), "batch 1 and 4", True),
    "bf16": ((), ("--dtype", "bfloat16"), "dtype fp32 and bf16", False),
    "eager": ((), ("--attn", "eager"), "bmm + softmax + bmm|attention sdpa and eager", False),
    "int8": ((), ("--quant",), "quant none and", False),
    "compile": ((), ("--compile",), "compiled no and yes", False),
    "threads": ((), ("--threads", "2"), "threads 1 and 2|(nothing)", False),
    "slow row": ((), ("--slow", "1.5"), "--slow 1.5|aten::mm", False),
    "prompt": ((), ("--prompt", "256"), "context|prompt", True),
    "context": (("--prompt", "512"), ("--prompt", "2048"), "context|prompt", True),
    "layers": ((), ("--layers", "6"), "layers 4 and 6", True),
    "width": ((), ("--width", "768"), "d_model 512 and 768|weights of products", True),
    "static cache": ((), ("--cache", "static"), "--cache static|cache that attention reads", False),
    "gpt2, nothing": (GPT2, GPT2, "", False),
    "gpt2, batch 4": (GPT2, (*GPT2, "--batch", "4"), "batch 1 and 4", True),
    "gpt2, bf16": (GPT2, (*GPT2, "--dtype", "bfloat16"), "dtype fp32 and bf16", False),
    "gpt2, eager": (GPT2, (*GPT2, "--attn", "eager"), "bmm + softmax + bmm|attention sdpa and eager", False),
    "gpt2, slow row": (GPT2, (*GPT2, "--slow", "1.5"), "--slow 1.5|time between kernels", False),
    "gpt2, prompt": (GPT2, (*GPT2, "--prompt", "256"), "context|prompt", True),
    "compile, nothing": (COMPILE, COMPILE, "", False),
    "compile, batch 4": (COMPILE, (*COMPILE, "--batch", "4"), "batch 1 and 4", True),
    "compile, bf16": (COMPILE, (*COMPILE, "--dtype", "bfloat16"), "dtype fp32 and bf16", False),
    "compile, layers": (COMPILE, (*COMPILE, "--layers", "6"), "layers 4 and 6", True),
    "gpt2, compile": (GPT2, (*GPT2, *COMPILE), "compiled no and yes", False),
    "sleep": (LOOP, ("--sleep", "10"), "--sleep|all_reduce", False),
    "sleep removed": (("--sleep", "10"), LOOP, "--sleep|all_reduce", False),
    "sleep, nothing": (LOOP, LOOP, "", False),
    "slow row removed": (("--slow", "1.5"), (), "--slow 1.5|aten::mm", False),
    "batch 4 to 2": (("--batch", "4"), ("--batch", "2"), "batch 4 and 2", True),
    "fp16": ((), ("--dtype", "float16"), "dtype fp32 and fp16", False),
    "bf16, nothing": (BF16, BF16, "", False),
    "bf16, threads": (BF16, (*BF16, "--threads", "2"), "threads 1 and 2|(nothing)", False),
    "eager, nothing": (EAGER, EAGER, "", False),
    "eager, prompt": (EAGER, (*EAGER, "--prompt", "256"), "context|prompt", True),
    "eager, slow row": (EAGER, (*EAGER, "--slow", "1.5"), "--slow 1.5|aten::mm", False),
    "compile, prompt": (COMPILE, (*COMPILE, "--prompt", "256"), "context|prompt", True),
    "gpt2, layers": (GPT2, (*GPT2, "--layers", "6"), "layers 4 and 6", True),
    "gpt2, context": (LONG_GPT2, (*GPT2, "--prompt", "2048"), "context|prompt", True),
    "gpt2, static cache": (GPT2, (*GPT2, "--cache", "static"), "--cache static|cache that attention", False),
}


def make(python: str, folder: Path, names: list[str]) -> None:
    """Record both sides of each pair in both ways, a side that pairs share once, that of `nothing` twice."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (a, b, _, _) in PAIRS.items():
        for path, options in zip(list_files(folder, name), (a, b), strict=True):
            if (not names or name in names) and not path.with_suffix(".clock").exists():
                record(python, path, options)
                print(path.name, flush=True)


def list_files(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the files of both sides of a pair, without suffix."""
    a, b, *_ = PAIRS[name]
    first, second = ("".join(options).replace("--", "_") or "plain" for options in (a, b))
    return folder / first, folder / (second if a != b else f"{second}_again")


def record(python: str, path: Path, options: tuple[str, ...], name: str = "decode.py") -> None:
    """Record a program by our recorder and by torch.profiler, with its own clock of either run."""
    program, clocks = [python, str(PROGRAMS / name), *options], {}
    if "--sleep" in options:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517"]
        program = [python, *launch, *program[1:]]
    recorder = [sys.executable, "-m", "tracetui", "record", "--quiet", "-o", str(path.with_suffix(".jsonl"))]
    traced = [*program, "--profile", str(path.with_suffix(".json")), "--steps", "16"]
    for kind, command in (("jsonl", [*recorder, "--", *program]), ("json", traced)):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        clocks[kind] = json.loads(next(s for s in done.stdout.splitlines() if "step_ns" in s))
    path.with_suffix(".clock").write_text(json.dumps(clocks))


def judge(folder: Path, names: list[str]) -> None:
    """Print what is said of each pair, and how many judgements are right."""
    counts = {"right": 0, "wrong": 0}
    for name in names or PAIRS:
        files = list_files(folder, name)
        if not all(file.with_suffix(".clock").exists() for file in files):
            continue
        kinds = [kind for kind in ("jsonl", "json") if all(f.with_suffix(f".{kind}").exists() for f in files)]
        for kind in kinds:
            runs = [load(file.with_suffix(f".{kind}"), cache=False)[0] for file in files]
            wall, cpu = read_ratios(files, kind)
            compared = compare_runs(runs, Look())
            faults = list_faults(name, compared, wall, cpu)
            counts["wrong" if faults else "right"] += 1
            lines = describe_decision(compared, Look().terms)
            own = f"own clock {wall:.2f}×, CPU {cpu:.2f}×"
            print(f"{name} ({kind}, {own}): {'; '.join(faults) or 'right'}", flush=True)
            print("   ", *(line[:250] for line in lines[:4]), sep="\n    ")
    print(counts)


def read_ratios(files: tuple[Path, Path], kind: str) -> tuple[float, float]:
    """Read how many times as long a step takes by the program's own clock, and by that of its CPU time."""
    a, b = (json.loads(file.with_suffix(".clock").read_text())[kind] for file in files)
    return b["step_ns"] / a["step_ns"], b["cpu_ns"] / a["cpu_ns"]


def list_faults(name: str, compared: Diff, ratio: float, cpu_ratio: float) -> list[str]:
    """List what is wrong in the first lines of a pair, whose step takes `ratio` times as long.

    What other programs add to a step was not planted, and is in no CPU time; a sleep is in none either.
    """
    *_, named, is_work = PAIRS[name]
    faults = list_false_words(compared, named, ratio, is_work=is_work, is_equal=name.endswith("nothing"))
    first, verdict = read_first_lines(compared)
    planted = ratio if name.startswith("sleep") else cpu_ratio
    if not (is_work or name.endswith("nothing")) and verdict == "~" and is_shown(first, compared, planted):
        faults.append(f"undecided, and {planted:.2f} times were planted")
    return faults


def read_first_lines(compared: Diff) -> tuple[str, str]:
    """Return the first lines, and the verdict on the phase that takes longest."""
    row = select_main_phase(compared)
    return "\n".join(describe_decision(compared, Look().terms)[:5]), row["verdict"] if row else "~"


def list_false_words(
    compared: Diff, named: str, ratio: float, *, is_work: bool, is_equal: bool = False
) -> list[str]:
    """List what the first lines lack of `named` (a|b is either), and what they say that is not so.

    The program's own clock says that a step takes `ratio` times as long.
    """
    first, verdict = read_first_lines(compared)
    faults = [] if any(part in first for part in named.split("|")) else [f"does not name {named}"]
    if first.startswith(UNEQUAL_WORK) != is_work or (is_work and verdict != "~"):
        faults.append("work differs without a word" if is_work else "equal work is called unequal")
    if (verdict == "faster" and ratio > 1) or (verdict == "slower" and ratio < 1):
        faults.append(f"{verdict}, and its own clock says {ratio:.2f} times")
    if is_equal and (verdict in ("faster", "slower") or "differs" in first):
        faults.append("a difference of equal runs")
    return faults


def is_shown(first: str, compared: Diff, ratio: float) -> bool:
    """Return whether a change is larger than what equal runs differ by, or what these steps hide.

    A row that is decided in the same direction is an answer, too.
    """
    word = "SLOWER" if ratio > 1 else "FASTER"
    hidden = re.search(r"differ by up to ±(\d+)%|show a change from [+-](\d+)% on", first)
    limits = [int(text) / 100 for text in (hidden.groups() if hidden else ()) if text]
    limits.append(math.expm1(2 * math.sqrt(2) * compared.sides.floor.spread))
    return f" {word} " not in first and abs(math.log(ratio)) > math.log1p(max(limits))


if __name__ == "__main__":
    python, folder, action, *names = sys.argv[1:]
    judge(Path(folder), names) if action == "judge" else make(python, Path(folder), names)
