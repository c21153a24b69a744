"""The table of programs that are run alone and recorded, with what each makes, counted by hand.

    python -m tests.capture.record.table [NAME…]

prints the table as Markdown, with the time that recording takes beside that of the program alone.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.house import ROOT

PROGRAMS: Final = Path(__file__).parent / "programs"
STDIN: Final = "one\ntwo\n"
CLOCK: Final = "seconds.txt"


class Made(NamedTuple):
    """What a program makes: steps, tokens of its decode steps (0: none are told), its exit code.

    None is not compared. One that is paced writes into CLOCK what its decode steps take by its own clock.
    """

    steps: int | None
    tokens: int | None = 0
    code: int = 0


TABLE: Final = {
    "decode": Made(41, 40),
    "decode_batch_8": Made(41, 320),
    "decode_without_cache": Made(30, 29),
    "decode_paced": Made(221, 220),
    "decode_two_requests": Made(32, 30),
    "decode_keywords": Made(13, 36),
    "decode_bfloat16": Made(21, 20),
    "decode_half_without_eval": Made(4, 3),
    "speculative": Made(250, None),
    "embeds_itself": Made(31, 60),
    "encoder": Made(20),
    "images": Made(12),
    "five_layers": Made(8),
    "recurrent": Made(30),
    "train": Made(12),
    "train_accumulated": Made(6),
    "train_data_loader": Made(8),
    "train_in_eval_mode": Made(17),
    "train_checkpointed": Made(10),
    "train_lbfgs": Made(5),
    "train_without_optimizer": Made(50),
    "train_two_optimizers": Made(10),
    "train_scheduled": Made(10),
    "train_contrastive": Made(9),
    "train_preferences": Made(12),
    "train_then_evaluate": Made(18),
    "compiled": Made(21, 20),
    "compiled_fullgraph": Made(21, 20),
    "compiled_functions": Made(63, 60),
    "compiled_in_place": Made(21, 20),
    "compiled_layers": Made(21, 20),
    "compiled_training": Made(8),
    "compiled_loss": Made(12),
    "exported": Made(5),
    "frozen": Made(30),
    "traced": Made(None, None),
    "profiles_itself": Made(18, 17),
    "profiled_loudly": Made(9, 7),
    "own_sitecustomize": Made(10, 9),
    "isolated": Made(6, 5),
    "executes_itself": Made(14, 12),
    "alarms": Made(201, 200),
    "hooks_of_its_own": Made(6, 5),
    "function_modes": Made(5),
    "threads": Made(88, 80),
    "coroutines": Made(21, 18),
    "forks": Made(36, 32),
    "forks_and_returns": Made(100, 93),
    "process_pools": Made(72, 64),
    "interrupted": Made(40, 36, 130),
    "spawns": Made(18, 16),
    "engine_as_a_command": Made(14, 12),
    "decodes_at_exit": Made(31, 29),
    "leaves_at_once": Made(11, 10, 7),
    "fails": Made(6, 5, 1),
    "fails_inside": Made(6, 5, 1),
    "retries": Made(101, 100),
    "two_models": Made(48, 42),
    "two_sizes": Made(168, 160),
    "ensemble": Made(24, 21),
    "judged": Made(84, 76),
    "reads_and_writes": Made(12, 10),
    "signals_itself": Made(6, 5, 143),
    "killed": Made(61, 60, 137),
    "crashes": Made(75, 72, 139),
    "closes_files": Made(62, 60),
    "saves": Made(513, 510),
    "quantized": Made(11),
    "encoder_decoder": Made(16, 14),
    "serves": Made(108, 96),
    "scores": Made(25),
    "spawns_ranks": Made(12),
}


@dataclass(frozen=True)
class Outcome:
    """What came out of one run of a program."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]
    seconds: float


def run(name: str, folder: Path, *, recorded: bool) -> Outcome:
    """Run a program in a folder of its own, alone or recorded into `folder / "prof.jsonl"`."""
    here = folder / ("recorded" if recorded else "alone")
    here.mkdir()
    command = [sys.executable, str(PROGRAMS / f"{name}.py")]
    if recorded:
        record = [sys.executable, "-m", "tracetui", "record", "--quiet", "-o", str(folder / "prof.jsonl")]
        command = [*record, "--", *command]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRACETUI")}
    paths = [str(path) for path in (PROGRAMS / f"{name}_path", ROOT) if path.is_dir()]
    began = time.perf_counter()
    done = subprocess.run(
        command, input=STDIN, cwd=here, env={**kept, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    files = {path.name: path.read_bytes() for path in sorted(here.iterdir()) if path.name != CLOCK}
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    return Outcome(code, done.stdout, done.stderr, files, time.perf_counter() - began)


def counted(recording: Path) -> tuple[int, int, float]:
    """Return the steps, the tokens of decode steps and their seconds, read from the lines themselves."""
    steps = tokens = took = 0
    if recording.exists():
        for line in recording.read_text().splitlines():
            told = json.loads(line) if line.startswith('{"kind":"step"') else {}
            steps += bool(told)
            if told.get("phase") == "decode":
                tokens, took = tokens + told["tokens"], took + told["dur"]
    return steps, tokens, took / 1e9


def without_moments(text: str) -> str:
    """Return what a program said without the times and process numbers in it."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+|_\d+\.json|: \d{4}-\d\d-\d\d \S+", "", text)


def is_about(expected: float | None, found: float) -> bool:
    """Return whether a number is what was expected, within 2 %."""
    return expected is None or abs(found - expected) <= 0.02 * expected


def main() -> None:
    """Run every program, or those that are named, and print the table."""
    print("| program | alone s | recorded s | steps | tokens | tokens/s | as alone |")
    print("|:--|--:|--:|--:|--:|--:|:--|")
    for name in sys.argv[1:] or TABLE:
        with tempfile.TemporaryDirectory() as place:
            alone, recorded = (run(name, Path(place), recorded=it) for it in (False, True))
            steps, tokens, took = counted(Path(place) / "prof.jsonl")
        same = (alone.code, alone.out, alone.files) == (recorded.code, recorded.out, recorded.files)
        made, rate = TABLE[name], f"{tokens / took:,.0f}" if took else "–"
        right = is_about(made.steps, steps) and is_about(made.tokens, tokens)
        words = "yes" if same and right else f"NO: {recorded.code} {recorded.err[-300:]!r} expected {made}"
        print(
            f"| {name} | {alone.seconds:.2f} | {recorded.seconds:.2f} | {steps:,} | {tokens or '–'} "
            f"| {rate} | {words} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
