"""Real Chrome traces of six producers, repeated to a size, to the kernel table beside other ways, in one run.

python -m tests.bench.real_traces [--mb 250] [--large 1000] [--rounds 3] [FILE …]

Each copy of the events has its times shifted, and the ids by which events refer to each other. The files are
samples next to the checkout, or those named; the first is repeated to `--large`, too. The best of the rounds
counts; a way that fails is said to.
"""

import argparse
import gzip
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.chrome_trace import in_turn, is_installed, measured, report
from tests.house import ROOT

SAMPLES: Final = {
    "torch on ROCm, with memory and stacks": "carried_over/qwen_mi300.json.gz",
    "torch on CUDA, with memory and stacks": "chrome_trace/bert-small-h100.json.gz",
    "vLLM": "serving/vllm_gptoss_decode/execution.json.gz",
    "JAX": "real_jax/decode.trace.json.gz",
    "onnxruntime": "real_onnxruntime/profile.json.gz",
    "viztracer": "host_only/viztracer.json.gz",
}
WAYS: Final = ("ours", "msgspec into polars", "DuckDB", "polars")
LARGE_WAYS: Final = WAYS[:2]
LARGE_IDS: Final = 1 << 40  # ids from here on are addresses, which name the same thing in each copy
_IDS: Final = (
    rb"id|External id|correlation|Ev Idx|Sequence number|Record function id|Python id|Python parent id"
)
_NUMBER: Final = re.compile(rb'("(?:ts|' + _IDS + rb')"\s*:\s*)(\d+)')


def repeat_trace(text: bytes, path: Path, megabytes: float) -> int:
    """Write the trace with its events repeated until the file has that size; return the number of copies."""
    is_list = text.lstrip().startswith(b"[")
    raw = (
        text.strip()
        if is_list
        else bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])["traceEvents"])
    )
    front, _, back = text.partition(raw)
    events = raw[1:-1].strip().rstrip(b",")
    pieces, numbers, is_time = [], [], []
    at = 0
    for match in _NUMBER.finditer(events):
        pieces.append(events[at : match.start(2)])
        numbers.append(int(match[2]))
        is_time.append(match[1].startswith(b'"ts"'))
        at = match.end()
    times = [n for n, of_time in zip(numbers, is_time, strict=True) if of_time and n]
    ids = [n for n, of_time in zip(numbers, is_time, strict=True) if not of_time and n < LARGE_IDS]
    span, id_span = max(times) - min(times) + 1_000_000, max(ids, default=0) + 1
    steps = [
        span if of_time else id_span * (n < LARGE_IDS) for n, of_time in zip(numbers, is_time, strict=True)
    ]
    copies = max(1, round((megabytes * 1e6 - len(text)) / len(events)) + 1)
    with path.open("wb") as out:
        out.write(front + b"[")
        for copy in range(copies):
            out.write(b",\n" if copy else b"")
            for piece, number, step in zip(pieces, numbers, steps, strict=True):
                out.write(piece)
                out.write(b"%d" % (number + copy * step))
            out.write(events[at:])
        out.write(b"]" + back)
    return copies


def compare(name: str, file: Path, megabytes: float, ways: tuple[str, ...], rounds: int) -> None:
    """Print what each way takes for the repeated trace."""
    text = file.read_bytes()
    text = gzip.decompress(text) if file.suffix == ".gz" else text
    with tempfile.TemporaryDirectory(prefix="chrome-bench-") as folder:
        path = Path(folder) / "trace.json"
        copies = repeat_trace(text, path, megabytes)
        best = {}
        for way in filter(is_installed, ways):
            try:
                best[way] = measured(way, path)
            except subprocess.CalledProcessError as error:
                print(f"{way} fails: {error.stderr.strip().splitlines()[-1][:160]}")
        for _ in range(rounds - 1):
            for way, others in in_turn(dict.fromkeys(best, path), 1).items():
                best[way] = min(best[way], others, key=lambda run: run["seconds"])
        report(f"{name}, {copies:,} times {len(text) / 1e6:.1f} MB", best, path.stat().st_size / 1e6)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--mb", type=float, default=250)
    parser.add_argument("--large", type=float, default=1000, help="of the first; 0 for none")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = ROOT.parent / "shared" / "samples"
    files = {path.name: path for path in args.files} or {
        name: folder / word for name, word in SAMPLES.items()
    }
    for number, (name, file) in enumerate(files.items()):
        if not file.is_file():
            print(f"\n{name}: there is no {file}")
            continue
        compare(name, file, args.mb, WAYS, args.rounds)
        if not number and args.large:
            compare(name, file, args.large, LARGE_WAYS, args.rounds)


if __name__ == "__main__":
    main()
