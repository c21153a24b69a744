"""Feeds damaged traces, lines and tables to the scanner, compiled with checks of memory and behaviour.

python -m tests.capture.loaders.sanitized_scan [--cases 100000] [--seed 0]

The first fault ends it with the compiler's report. For people with gcc, after a change of `_events.c`; the
suite compares answers (`test_chrome_compiled.py`).
"""

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from capture.build_part import build_command
from capture.loaders._scan import __file__ as package
from tests.bench._chrome_maker import Clock, step
from tests.bench._metallic_maker import Maker
from tests.conftest import FIXTURES
from tests.hostile import JSON, NAMES

CATEGORIES = ((b"kernel", 11), (b"gpu_memcpy", 3), (b"cuda_runtime", 1), (b"cpu_op", 6))
VALUED = (b"attention", b"conv", b"aten::empty")
CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1")
ODD = (b'"', b"\\", b"\\u", b"{", b"}", b"[", b"]", b",", b":", b"\0", b"\xf0", b"-", b"1e")
LONG = (b"[" * 300, b'{"a":' * 200, b" " * 500, b"9" * 400, b'"ts":1,')
PIECES = (1, 7, 100, 997, 1 << 18)
LONGEST = 60_000  # bytes of a document


def documents() -> list[bytes]:
    """Return the lists of events, without their opening bracket, that are damaged."""
    events = [json.loads(text) for text in list(step(Clock(), 1))[:60]]
    events += [{"ph": "X", "name": name, "cat": "kernel", "ts": 1.5, "dur": 1} for name in NAMES.values()]
    texts = [",".join(json.dumps(e, indent=indent) for e in events) + "]" for indent in (None, 1)]
    texts.append(",\n".join(list(step(Clock(), 1))[:60]) + "\n  ]")
    texts.append(",\n".join(list(step(Clock(), 1))[2:12] * 8) + "\n  ]")  # events that repeat others
    for path in (FIXTURES / "chrome").rglob("*.json"):
        texts.append(path.read_text(errors="surrogateescape").partition("[")[2])
    small = [h.content for h in JSON if isinstance(h.content, str | bytes)]
    raw = [t if isinstance(t, bytes) else t.encode("utf-8", "surrogatepass") for t in (*texts, *small)]
    return [text[:LONGEST] for text in raw]


def damaged(text: bytes, dice: random.Random) -> bytes:
    """Return bytes with some flipped, put in, taken out, repeated or cut off."""
    out = bytearray(text)
    for _ in range(dice.randint(0, 4)):
        at = dice.randrange(len(out) + 1)
        match dice.randrange(6):
            case 0 if at < len(out):
                out[at] = dice.randrange(256)
            case 1:
                out[at:at] = dice.choice(ODD)
            case 2:
                del out[at : at + dice.randint(1, 60)]
            case 3:
                out[at:at] = out[max(0, at - dice.randint(1, 2000)) : at]
            case 4:
                del out[at:]
            case _:
                out[at:at] = dice.choice(LONG)
    return bytes(out)


def scan(module: ModuleType, text: bytes, dice: random.Random) -> str:
    """Feed a text in pieces and take all that the scanner gives; return its last state."""
    stop = dice.choice((1 << 62, dice.randrange(len(text) + 1)))
    inside, lines = dice.random() < 0.2, dice.random() < 0.1
    scanner: Any = module.Scanner(CATEGORIES, VALUED, dice.getrandbits(64), 0, stop, inside, lines)
    at, piece = 0, dice.choice(PIECES if len(text) < 5000 else PIECES[-2:])
    while at < len(text) and scanner.feed(text[at : at + piece]):
        at += piece
    scanner.feed(b"")
    state = str(scanner.status()[0])
    for give in dice.sample(("rows", "labels", "texts", "odd", "others", "rest", "rows", "status"), 8):
        getattr(scanner, give)()
    scanner.feed(text[:50])
    return state


def scan_lines(module: ModuleType, text: bytes, dice: random.Random) -> str:
    """Feed lines of metallic's in pieces and take all that the scanner gives; return what it was."""
    reader: Any = module.Lines(dice.getrandbits(64), 0, dice.choice((1 << 62, dice.randrange(len(text) + 1))))
    at, piece = 0, dice.choice(PIECES if len(text) < 5000 else PIECES[-2:])
    while at < len(text) and reader.feed(text[at : at + piece]):
        at += piece
    reader.feed(b"")
    for give in dice.sample(("rows", "texts", "rows", "texts"), 4):
        getattr(reader, give)()
    reader.feed(text[:50])
    return "lines"


def scan_cells(module: ModuleType, text: bytes, dice: random.Random) -> str:
    """Cut separated values on some threads; return what it was."""
    width = dice.choice((1, 3, 3, 3, 4, 5000, 1 << 40))
    cut = module.cells(text, dice.choice(",,;"), width, dice.random() < 0.2, dice.randrange(5))
    return "no cells" if cut is None else "cells"


def attack(scanner: str, cases: int, seed: int) -> None:
    spec = importlib.util.spec_from_file_location("_events", scanner)
    if spec is None or spec.loader is None:
        sys.exit(f"{scanner} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dice, whole, states, began = random.Random(seed), documents(), dict[str, int](), time.monotonic()
    recorded = [
        b"".join(line.encode() for line in islice(Maker(b, 2).lines(), n)) for b, n in ((1, 40), (3, 300))
    ]
    repeats = ((0, 40), (9, 300), (70, 30_000))  # digits, lines
    separated = [b'k,"norm, and more of it",%d\n' % 10**n * lines for n, lines in repeats]
    readers = [(scan, whole)] * 7 + [(scan_lines, recorded)] * 2 + [(scan_cells, separated)]
    for _ in range(cases):
        reads, texts = dice.choice(readers)
        text = dice.choice(texts)
        state = reads(module, damaged(text, dice), dice)
        states[state] = states.get(state, 0) + 1
    print(f"{cases:,} cases in {time.monotonic() - began:.0f} s, no fault: {states}")


def build_environment() -> dict[str, str]:
    """Build the environment of a Python that loads a part with CHECKS."""
    runtimes = [  # that of C++, too: without it the first exception of torch ends the program
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    options = {"PYTHONMALLOC": "malloc", "ASAN_OPTIONS": "detect_leaks=0"}
    return {**os.environ, "LD_PRELOAD": " ".join(runtimes).replace("\n", ""), **options}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scanner", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.scanner:
        attack(args.scanner, args.cases, args.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        scanner = Path(folder) / "_events.abi3.so"
        subprocess.run([*build_command(Path(package).with_name("_events.c"), scanner), *CHECKS], check=True)
        again = [sys.executable, "-m", "tests.capture.loaders.sanitized_scan", "--scanner", str(scanner)]
        chosen = ["--cases", str(args.cases), "--seed", str(args.seed)]
        return subprocess.run([*again, *chosen], env=build_environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
