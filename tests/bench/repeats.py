"""How comparisons fare on real recordings of equal runs: wrong families, and how often a planted op is found.

python -m tests.bench.repeats record DIR [COUNT [MODEL…]]: records each model in turn, COUNT times, into DIR
python -m tests.bench.repeats judge DIR…: every way of asking over splits of each model's recordings
python -m tests.bench.repeats short DIR…: single pairs of few steps of each, beside the assumed floor
python -m tests.bench.repeats mixed DIR: the kept recordings of `samples/repeats_mixed`, quiet and loaded

Of several folders also the mixture: a recording of each in turn. A wrong family is a comparison of equal runs
in which some row of decode is said to differ; `beside` is the same of the other rows beside a planted op.
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.load_runs import load
from capture.run import Run
from tracetui.analysis.frames.statistics import judge_evidence
from tracetui.compare.diff import compare_runs
from tracetui.compare.evidence import repeat_test
from tracetui.compare.evidence.repeat_test import measure_floor
from tracetui.compare.evidence.row_evidence import RunSamples, collect_run_samples
from tracetui.compare.pairing.step_times import StepTimes, build_step_times
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.look import Look, Terms

MODELS = ("qwen2.5-0.5b", "gemma-3-270m")
OPS = ("o_proj", "ffn_down", "lm_head")
FACTORS = (1.1, 1.3, 1.5)
WAYS = {"3 against 3": (3, 3, 0), "1 and 1, --aa of 4": (1, 1, 4), "3 against 1": (3, 1, 0)}
TRIES = 100
PAIRS = 30
STEPS = 288  # some eight seconds of decode: a neighbour's turns of up to nine seconds average out in part
SHORT = (8, 24)  # steps of a short pair
WARM = 12  # steps before them
CHANGED = {"slower", "faster"}


def record(folder: Path, count: int, models: Sequence[str]) -> None:
    """Record the models in turn, so that a busy moment meets all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = ["--weights", "random", "--steps", str(STEPS), "--quiet"]
    for i in range(1, count + 1):
        for model in models:
            out = folder / f"{model}-{i:02}.jsonl"
            command = [sys.executable, "-m", "tracetui", "record", "--model", model, *engine, "-o", str(out)]
            subprocess.run(command, check=True)


def planted(run: Run, op: str, factor: float) -> Run:
    """The run with one op slower in every step."""
    slow = pl.when(pl.col("name").cast(pl.String) == op).then(factor).otherwise(1.0)
    events = run.events.with_columns((pl.col("dur") * slow).cast(pl.Int64))
    return Run(run.name, run.meta, events, run.log)


def splits(count: int, sizes: Sequence[int], tries: int) -> Iterator[list[NDArray[np.int64]]]:
    """Places of the runs of each group."""
    rng = np.random.default_rng(1)
    for _ in range(tries):
        order = rng.permutation(count)[: sum(sizes)]
        yield np.split(order, np.cumsum(sizes)[:-1])


def called(samples: RunSamples, slow: int | None = None, factor: float = 1.0) -> list[str]:
    """The verdicts of all rows, one of them made slower in the runs of b; as the diff gives them."""
    times = samples.times.copy()
    if slow is not None:
        times[slow, samples.groups == 1] *= factor
    found = repeat_test.judge_repeats(times, samples.groups, contended=samples.contended).evidence
    return judge_evidence(found, Terms().threshold * (np.abs(found.median_a) + np.abs(found.median_b)) / 2)


def of_repeats(works: Sequence[StepTimes], names: Sequence[str], sizes: Sequence[int]) -> str:
    """How one way of asking fares over many splits, in words."""
    counts: dict[str, int] = defaultdict(int)
    rows = [[name] for name in names]
    for groups in splits(len(works), sizes, TRIES):
        samples = collect_run_samples([[works[i] for i in group] for group in groups], "decode", rows, rows)
        counts["wrong"] += bool(CHANGED & set(called(samples)))
        for op in OPS:
            row = names.index(op)
            for factor in FACTORS:
                words = called(samples, row, factor)
                counts[f"{factor}×"] += words[row] == "slower"
                counts["beside"] += factor == 1.3 and bool(CHANGED & {*words[:row], *words[row + 1 :]})
    parts = (f"{k} {v / TRIES / (1 if k == 'wrong' else len(OPS)):4.0%}" for k, v in counts.items())
    return "  ".join(parts)


def of_pairs(runs: Sequence[Run]) -> str:
    """Pairs with a slower row: those that a gate fails on, as it does where the floor is known, and all."""
    assumed = known = 0
    for a, b, rest in splits(len(runs), (1, 1, 4), PAIRS):
        floors = (NoiseFloor(), measure_floor([runs[i] for i in rest]))
        pair = runs[a[0]], runs[b[0]]
        found = [
            compare_runs(Sides(pair, floor=floor), Look()).rows["verdict"].to_list() if floor else []
            for floor in floors
        ]
        assumed += "slower" in found[0]
        known += "slower" in found[1]
    gate = f"{known} of {PAIRS} exit 1 beside a floor of 4 repeats"
    return gate + f"; without one {assumed} have a slower row, exit 4"


def cut(run: Run, steps: int) -> Run:
    """The run with so many of its warm steps, and what belongs to none."""
    first = run.events.filter(pl.col("kind") == "step")["step"].drop_nulls().unique().sort()[WARM]
    within = pl.col("step").is_null() | pl.col("step").is_between(first, first + steps - 1)
    return Run(run.name, run.meta, run.events.filter(within), run.log)


def of_short(runs: Sequence[Run]) -> str:
    """Pairs of equal runs with a wrong row, and how often an op twice as slow is found."""
    wrong = found = 0
    for a, b in splits(len(runs), (1, 1), PAIRS):
        pair = runs[a[0]], runs[b[0]]
        wrong += bool(CHANGED & set(_decode(*pair)["verdict"]))
        for op in OPS:
            rows = _decode(pair[0], planted(pair[1], op, 2.0))
            found += rows.filter(pl.col("name").cast(pl.String) == op)["verdict"].to_list() == ["slower"]
    return f"wrong {wrong} of {PAIRS}, 2× found {found / PAIRS / len(OPS):.0%}"


def _decode(a: Run, b: Run) -> pl.DataFrame:
    return compare_runs((a, b), Look()).rows.filter(pl.col("phase") == "decode")


def judge(label: str, model: str, paths: Sequence[Path]) -> None:
    runs = [load(path)[0] for path in paths]
    works = [build_step_times(run, Look(phase="decode")) for run in runs]
    names = sorted(works[0].list_names("decode"))
    print(f"{label:14} {model:14} {'1 against 1':20} {of_pairs(runs)}", flush=True)
    for way, sizes in WAYS.items():
        if sum(sizes) <= len(runs):
            print(f"{label:14} {model:14} {way:20} {of_repeats(works, names, sizes)}", flush=True)


def judge_mixed(folder: Path) -> None:
    """Print how often equal runs differ, and how often a row is found: 1.2× recorded so, 1.5× multiplied."""
    works = {path.stem: build_step_times(load(path)[0], Look(phase="decode")) for path in _list(folder, "")}
    names = sorted(next(iter(works.values())).list_names("decode"))
    rows, row = [[name] for name in names], names.index("ffn_down")

    def collect(*groups: Sequence[StepTimes]) -> RunSamples:
        return collect_run_samples(groups, "decode", rows, rows)

    for label, states in (("quiet", "q"), ("loaded", "l"), ("both", "ql")):
        equal, slow = (
            [works[path.stem] for state in states for path in _list(folder, state + kind)] for kind in "as"
        )
        for has_others in (False, True):
            counts: dict[str, int] = defaultdict(int)
            for (order,) in splits(len(equal), (len(equal),), TRIES):
                runs = [equal[i] for i in order]
                changed = [slow[i] for i in order if i < len(slow)][:3]
                same = collect(runs[:3], runs[3:6], runs[6:] if has_others else [])
                recorded = collect(runs[:3], changed, runs[3:] if has_others else [])
                counts["wrong"] += bool(CHANGED & set(called(same)))
                counts["1.2×"] += called(recorded)[row] == "slower"
                counts["1.5×"] += called(same, row, 1.5)[row] == "slower"
            rest = "with the others as --aa" if has_others else "alone"
            figures = "  ".join(f"{word} {count / TRIES:4.0%}" for word, count in counts.items())
            print(f"{label:7} 3 against 3 {rest:24} {figures}", flush=True)
        print(f"{label:7} {of_pairs([work.run for work in equal])}", flush=True)


def _list(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{kind}*.jsonl.gz"))


def judge_all(folders: Sequence[Path]) -> None:
    for model in sorted({path.stem.rpartition("-")[0] for path in folders[0].glob("*.jsonl")}):
        found = [sorted(folder.glob(f"{model}-*.jsonl")) for folder in folders]
        for folder, paths in zip(folders, found, strict=True):
            judge(folder.name, model, paths)
        if len(folders) > 1:
            judge("mixed", model, [paths[i] for i in range(12) for paths in found if i < len(paths)][:12])


def judge_short(folders: Sequence[Path]) -> None:
    for folder in folders:
        for model in sorted({path.stem.rpartition("-")[0] for path in folder.glob("*.jsonl")}):
            runs = [load(path)[0] for path in sorted(folder.glob(f"{model}-*.jsonl"))]
            for steps in SHORT:
                told = of_short([cut(run, steps) for run in runs])
                print(f"{folder.name:14} {model:14} {steps:3} steps  {told}", flush=True)


def main() -> None:
    match sys.argv[1:]:
        case ["record", folder, *more]:
            record(Path(folder), int(more[0]) if more else 9, more[1:] or MODELS)
        case ["short", *folders] if folders:
            judge_short([Path(folder) for folder in folders])
        case ["mixed", folder]:
            judge_mixed(Path(folder))
        case ["judge", *folders] if folders:
            judge_all([Path(folder) for folder in folders])
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
