"""Compare what two checkouts print: every view, digest and diff of the fixtures and of any files named.

    python -m tests.compare_checkouts OLD NEW [FILE_OR_FOLDER …]

JSON must have the same shape, keys and numbers, to the digit. Sentences that only one of them prints, in JSON
or in text, are listed with how often they occur. Exit code 1 if a number, a key or an exit code differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

FIXTURES: Final = Path(__file__).parent / "fixtures"

# runs in either checkout: reads a command line a line, writes its exit code, stdout and stderr
WORKER: Final = """
import json, os, sys, warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
sys.path.insert(0, os.getcwd())
from tracetui import cli
for line in sys.stdin:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = cli.main(json.loads(line))
        except SystemExit as stop:
            code = stop.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def list_inputs(places: Iterable[Path]) -> list[Path]:
    """Return the files below the given places, sorted, without documents."""
    files = (file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place]))
    return [file for file in files if file.is_file() and file.suffix not in (".md", ".py", ".svg")]


def list_commands(files: list[Path], views: list[str]) -> Iterator[list[str]]:
    """Yield each command line: all views of each file in both forms, and a diff of each two neighbours."""
    for file in files:
        for view in views:
            for form in ("json", "text"):
                yield ["report", view, str(file), "--format", form, "--limit", "200"]
        yield ["digest", str(file)]
    for first, second in pairwise(files):
        if first.parent == second.parent and first.suffix == second.suffix:
            yield ["diff", str(first), str(second), "--format", "json"]
            yield ["diff", str(first), str(second)]


def run_commands(checkout: Path, commands: list[list[str]], cache: str) -> Iterator[tuple[int, str, str]]:
    """Yield exit code, stdout and stderr of each command, run by one process in that checkout."""
    env = {**os.environ, "XDG_CACHE_HOME": cache, "XDG_STATE_HOME": "/dev/null", "COLUMNS": "120"}
    env |= {"XDG_CONFIG_HOME": "/dev/null", "PYTHONPATH": str(checkout)}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=checkout,
        env=env,
        text=True,
    )
    assert worker.stdin and worker.stdout
    for command in commands:
        worker.stdin.write(json.dumps(command) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
        if not line:
            raise RuntimeError(f"{checkout}: the process ended at {command}")
        yield tuple(json.loads(line))
    worker.stdin.close()
    worker.wait()


def find_differences(old: Any, new: Any, place: str = "") -> Iterator[str | tuple[str, str]]:
    """Yield the place of each different key, number or length, and each pair of different sentences."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from find_differences(old[key], new[key], f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from find_differences(a, b, f"{place}[{i}]")
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            yield f"- {old}", f"+ {new}"
    elif old != new:
        yield place


def list_views(checkout: Path) -> list[str]:
    """Return the names of the views of a checkout, in the order of their tabs."""
    code = "import sys, os; sys.path.insert(0, os.getcwd()); from tracetui.views import VIEWS; print(*VIEWS)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def main() -> int:
    """Run all commands in both checkouts side by side and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("places", type=Path, nargs="*", default=[FIXTURES])
    args = parser.parse_args()
    files = list_inputs(place.resolve() for place in args.places)
    commands = list(list_commands(files, list_views(args.old.resolve())))
    differing_json, text_lines, codes = [], Counter[str](), 0
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        old = run_commands(args.old.resolve(), commands, first)
        new = run_commands(args.new.resolve(), commands, second)
        for command, before, after in zip(commands, old, new, strict=True):
            if before[0] != after[0]:
                codes += 1
                print(f"exit {before[0]} -> {after[0]}: {' '.join(command)}\n    {after[2].strip()[-300:]}")
            elif "json" in command and before[1] != after[1]:
                changed = list(find_differences(json.loads(before[1]), json.loads(after[1])))
                text_lines.update(line for text in changed if isinstance(text, tuple) for line in text)
                if places := [place for place in changed if isinstance(place, str)]:
                    differing_json.append(command)
                    print("JSON differs:", *command, "at", *places[:3])
            elif before[1:] != after[1:]:
                a, b = ("\n".join(answer[1:]).splitlines() for answer in (before, after))
                text_lines.update(f"- {line.strip()}" for line in set(a) - set(b))
                text_lines.update(f"+ {line.strip()}" for line in set(b) - set(a))
    for line, count in sorted(text_lines.items(), key=lambda item: item[0][2:]):
        print(f"{count:5} {line}")
    print(
        f"{len(files)} files, {len(commands)} commands: {codes} exit codes, {len(differing_json)} JSON "
        f"answers and {len(text_lines)} lines of text differ"
    )
    return 1 if differing_json or codes else 0


if __name__ == "__main__":
    sys.exit(main())
