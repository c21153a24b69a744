"""Planted faults: whether the fast tests find each of them, and which test does.

    python -m tests.mutations [NAME…] [--checkout DIR] [--table FILE] [--stages N]

`mutations.tsv` lists them: a name, a file, a text that occurs in it once, and what is put in its place. The
checkout is copied; each fault is planted there alone, the tests run from the likeliest to the last until one
fails, and the file is restored. A test that fails without the fault as well finds nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = Path(__file__).with_suffix(".tsv")
ROOT: Final = Path(__file__).parent.parent
FAST: Final = "not slow and not table"
STAGES: Final = 5  # see list_stages
STAGE_LIMIT_S: Final = 1800  # a stage that takes longer hangs, and that is found, too
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Mutation(NamedTuple):
    """A fault: a text that occurs once in a file, and the text that replaces it."""

    name: str
    file: str
    old: str
    new: str


class Finding(NamedTuple):
    """How a fault was found: by which test, empty if by none."""

    test: str
    seconds: float


def read_table(table: Path = TABLE) -> list[Mutation]:
    """Read the faults: four columns, separated by tabs."""
    return [Mutation(*line.split("\t")) for line in table.read_text().splitlines()]


def copy_checkout(root: Path, folder: Path) -> Path:
    """Copy a checkout with its compiled parts into a folder; environment and samples are linked."""
    leave_out = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
    copy = Path(shutil.copytree(root, folder / "checkout", ignore=leave_out, symlinks=True))
    (copy / ".venv").symlink_to((root / ".venv").resolve())
    if (samples := (root.parent / "shared").resolve()).is_dir():
        (folder / "shared").symlink_to(samples)
    return copy


def list_stages(root: Path, file: str) -> list[list[str]]:
    """List test files in stages: titled like the module, naming it, mirror folder, room, all others."""
    module = Path(file).with_suffix("")
    package, words = ".".join(module.parent.parts), {*module.parts[-2:]} - {"__init__", module.parts[0]}
    imports = re.compile(rf"\b{package}\b(?: import .*|\.)\b{module.name}\b")
    title = re.compile(rf"_(?:{'|'.join(words)})(?:_|$)")
    paths = sorted(path.relative_to(root) for path in (root / "tests").rglob("test_*.py"))
    folder, room = Path("tests") / module.parent, Path("tests") / module.parts[0]

    def has_title(path: Path) -> bool:
        return title.search(path.stem) is not None and room in path.parents

    def names_module(path: Path) -> bool:
        return imports.search((root / path).read_text()) is not None

    rules = (
        has_title,
        names_module,
        lambda path: path.parent == folder,
        lambda path: room in path.parents,
        lambda _: True,
    )
    stages: list[list[str]] = []
    for rule in rules:
        stages.append([str(path) for path in paths if rule(path)])
        paths = [path for path in paths if str(path) not in stages[-1]]
    return stages


def run_tests(root: Path, tests: Sequence[str], *options: str) -> list[str]:
    """Run tests; return those that failed, or how the run ended if it ended in another way."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfE", "--tb=no", "-m", FAST]
    started = subprocess.Popen(
        ["nice", "-n", "10", *command, *options, *tests],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = started.communicate(timeout=STAGE_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, 9)
        return [f"no end within {STAGE_LIMIT_S} s"]
    if started.returncode in (0, 5):
        return []
    if started.returncode == 4:
        sys.exit(output)
    return _FAILED.findall(output) or [f"pytest ended with {started.returncode}"]


def find_mutation(root: Path, mutation: Mutation, stages: int, unreliable: Sequence[str]) -> Finding:
    """Plant a fault and run tests until one fails; `unreliable` tests are left out."""
    path, began = root / mutation.file, time.monotonic()
    text = path.read_text()
    if text.count(mutation.old) != 1:
        sys.exit(f"{mutation.name}: the text occurs {text.count(mutation.old)} times in {mutation.file}")
    deselected = [f"--deselect={test}" for test in unreliable]
    failed: list[str] = []
    try:
        path.write_text(text.replace(mutation.old, mutation.new))
        for number, tests in enumerate(list_stages(root, mutation.file)[:stages]):
            workers = ["-n", "2"] if number > 2 else []
            if tests and (failed := run_tests(root, tests, "-x", *workers, *deselected)):
                break
    finally:
        path.write_text(text)
    return Finding(failed[0] if failed else "", time.monotonic() - began)


def find_all(root: Path, mutations: Sequence[Mutation], stages: int) -> Iterator[tuple[Mutation, Finding]]:
    """Yield how each fault was found; those found by a test that fails without them come again."""
    unreliable: list[str] = []
    while mutations:
        findings: dict[Mutation, Finding] = {}
        for mutation in mutations:
            findings[mutation] = find_mutation(root, mutation, stages, unreliable)
            yield mutation, findings[mutation]
        tests = sorted({finding.test for finding in findings.values() if "::" in finding.test})
        failed = run_tests(root, tests) if tests else []
        unreliable += [test for test in failed if test in tests]
        mutations = [mutation for mutation in mutations if findings[mutation].test in unreliable]
        if mutations:
            print(f"again, because these tests fail without a fault: {' '.join(unreliable)}", flush=True)


def main() -> int:
    """Print a line per fault; return 1 if some fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults (default: all)")
    parser.add_argument("--checkout", type=Path, default=ROOT, metavar="DIR")
    parser.add_argument("--table", type=Path, default=TABLE, metavar="FILE", help="other faults")
    parser.add_argument("--stages", type=int, default=STAGES, metavar="N", help="run only the first N stages")
    args = parser.parse_args()
    chosen = [m for m in read_table(args.table) if not args.names or m.name in args.names]
    if missing := set(args.names) - {mutation.name for mutation in chosen}:
        parser.error(f"no such fault: {', '.join(sorted(missing))}")
    found: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = copy_checkout(args.checkout.resolve(), Path(folder))
        for mutation, finding in find_all(root, chosen, args.stages):
            found[mutation.name] = bool(finding.test)
            print(f"{mutation.name}\t{finding.test or 'NOT FOUND'}\t{finding.seconds:.0f} s", flush=True)
    print(f"{sum(found.values())} of {len(found)} faults are found")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
