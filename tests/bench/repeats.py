"""How comparisons fare on real recordings of equal runs: wrong families, and how often a planted op is found.

python -m tests.bench.repeats record DIR [COUNT [MODEL…]]: records each model in turn, COUNT times, into DIR
python -m tests.bench.repeats judge DIR…: every kind of comparison over splits of each model's recordings
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from capture.open import load
from capture.run import Run
from tracetui.analysis.compare.diff import diff
from tracetui.look import Floor, Look, Terms

MODELS = ("qwen2.5-0.5b", "gemma-3-270m")
OPS = ("o_proj", "ffn_down", "lm_head")
WAYS = {
    "1 against 1": (1, 1, 0),
    "3 against 3": (3, 3, 0),
    "1 and 1, --aa of 4": (1, 1, 4),
    "3 against 1": (3, 1, 0),
}
TRIES = 20


def record(folder: Path, count: int, models: Sequence[str]) -> None:
    """Record the models in turn, so that a busy moment meets all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = ["--weights", "random", "--steps", "96", "--quiet"]
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


def verdicts(a: Sequence[Run], b: Sequence[Run], same: Sequence[Run], floor: Floor) -> dict[str, str]:
    """The verdicts of the decode rows."""
    terms = Terms(more_a=tuple(a[1:]), more_b=tuple(b[1:]), same=tuple(same), floor=floor)
    rows = diff(a[0], b[0], Look(phase="decode", terms=terms)).rows
    return dict(rows.select("name", "verdict").rows())


def splits(runs: Sequence[Run], sizes: Sequence[int]) -> Iterator[list[list[Run]]]:
    rng = np.random.default_rng(1)
    for _ in range(TRIES):
        order = [runs[i] for i in rng.permutation(len(runs))]
        yield [[order.pop() for _ in range(size)] for size in sizes]


def judge(folder: Path, model: str) -> None:
    runs = [load(path)[0] for path in sorted(folder.glob(f"{model}-*.jsonl"))]
    for way, sizes in WAYS.items():
        if sum(sizes) > len(runs):
            continue
        counts: dict[str, int] = defaultdict(int)
        for a, b, same in splits(runs, sizes):
            equal = verdicts(a, b, same, Floor())
            counts["wrong"] += bool({"slower", "faster"} & set(equal.values()))
            for factor in (1.1, 1.3, 1.5):
                for op in OPS:
                    found = verdicts(a, [planted(run, op, factor) for run in b], same, Floor())
                    counts[f"{factor}×"] += found[op] == "slower"
        found = "  ".join(f"{k} {v / len(OPS) / TRIES:4.0%}" for k, v in counts.items() if k != "wrong")
        print(
            f"{folder.name:10} {model:14} {way:20} wrong {counts['wrong']:2} of {TRIES}  {found}", flush=True
        )


def main() -> None:
    match sys.argv[1:]:
        case ["record", folder, *more]:
            record(Path(folder), int(more[0]) if more else 9, more[1:] or MODELS)
        case ["judge", *folders] if folders:
            for folder in map(Path, folders):
                for model in sorted({path.stem.rpartition("-")[0] for path in folder.glob("*.jsonl")}):
                    judge(folder, model)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
