"""Kill engine and explorer again and again, and see what is left: `python -m tests.kills --kills 300`.

In turn the engine of a recording, an explorer that watches one, and one that only starts (in its first
second, while it hands over to the engine) get SIGKILL at a random moment. After each, every step that the
engine had done 100 ms before its death is in the file, no line is torn, and no process is left. The engine
says in a file of its own when each step was done.
"""

import argparse
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capture.errors import UnreadableError
from capture.load_runs import load
from tests.tracetui.ui.pty import Terminal

OPS: Final = 20
DONE: Final = struct.Struct("qq")  # a step, and when it was done
PATIENCE: Final = 30.0
SETTLED_NS: Final = 100_000_000  # after which a step must stand in the file

ENGINE: Final = f"""
import os, struct, sys, time
from capture.native.emit import Emitter, now
open(sys.argv[1] + ".pid", "w").write(str(os.getpid()))
done = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
emitter = Emitter(os.environ["TRACETUI_OUT"])
emitter.run("storm", {{"pid": os.getpid()}})
emitter.plan({{"id": i, "name": f"op {{i}}", "lens": "wall"}} for i in range({OPS}))
step = 0
while True:
    at = now()
    t = step * 10**6
    emitter.columns(range({OPS}), [t + i for i in range({OPS})], [step + i for i in range({OPS})], step=step)
    os.write(done, struct.pack("qq", step, at))
    step += 1
    time.sleep(0.002)
"""


@dataclass(frozen=True)
class Left:
    """What one kill left behind."""

    lost_ns: int  # between the oldest step that is not in the file and the newest that was done
    torn: int  # lines
    wrong: int  # steps whose numbers are not those that were written
    orphans: int  # processes


def storm(kills: int, seed: int, folder: Path) -> dict[str, list[Left]]:
    """Return what each kill of the engine and of the explorer left."""
    draw = random.Random(seed)
    found: dict[str, list[Left]] = {"engine": [], "explorer": [], "start": []}
    for number in range(kills):
        for victim, lefts in found.items():
            place = folder / f"{victim}{number}"
            place.mkdir()
            if victim == "start":
                lefts.append(_killed_at_start(place, draw.uniform(0, 1)))
            else:
                lefts.append(_killed(victim, place, draw.uniform(0, 0.6)))
            shutil.rmtree(place)
        if number % 10 == 9:
            print(f"{table(found)}\n", flush=True)
    return found


def _killed(victim: str, place: Path, after: float) -> Left:
    recording, done = place / "prof.jsonl", place / "done"
    verb = "record" if victim == "engine" else "live"  # which takes what it started along
    program = ("--", sys.executable, "-c", ENGINE, str(done))
    with Terminal(verb, "-o", str(recording), *program, size=(100, 24)) as explorer:
        _until(lambda: done.exists() and done.stat().st_size > 0, explorer)
        time.sleep(after)
        engine, session = int(Path(f"{done}.pid").read_text()), explorer.child.pid
        os.kill(engine if victim == "engine" else session, signal.SIGKILL)
        _until(lambda: not _alive({engine, session}), explorer, fatal=False)
        return _left(recording, done, {engine, session})


def _killed_at_start(place: Path, after: float) -> Left:
    """Kill an explorer so long after its start, whatever it does, and see what is left."""
    recording, done = place / "prof.jsonl", place / "done"
    program = ("--", sys.executable, "-c", ENGINE, str(done))
    with Terminal("live", "-o", str(recording), *program, size=(100, 24)) as explorer:
        deadline = time.monotonic() + after
        while time.monotonic() < deadline:
            explorer.read(0.01)
        os.kill(explorer.child.pid, signal.SIGKILL)
        ours = {explorer.child.pid, *_list_naming(done)}
        _until(lambda: not {*_alive(ours), *_list_naming(done)}, explorer, fatal=False)
        ours |= {*_list_naming(done)}
        if done.exists() and done.stat().st_size:
            return _left(recording, done, ours)
        return Left(0, 0, 0, len(_alive(ours)))


def _list_naming(file: Path) -> list[int]:
    """Return the processes that name a file in their command."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with suppress(OSError):
                if os.fsencode(file) in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def _left(recording: Path, done: Path, ours: set[int]) -> Left:
    raw = done.read_bytes()
    told = [DONE.unpack_from(raw, at) for at in range(0, len(raw) - DONE.size + 1, DONE.size)]
    try:
        (run,) = load(recording, cache=False)
    except UnreadableError:  # killed before anything was due to be written
        return Left(told[-1][1] - told[0][1], 0, 0, len(_alive(ours)))
    kernels = run.events.filter(run.events["kind"] == "kernel")
    steps = {step: frame["dur"].to_list() for (step,), frame in kernels.group_by("step")}
    missing = [at for step, at in told if step not in steps]
    wrong = sum(durations != [step + i for i in range(OPS)] for step, durations in steps.items())
    return Left(told[-1][1] - missing[0] if missing else 0, run.log.dropped, wrong, len(_alive(ours)))


def _alive(ours: set[int]) -> list[int]:
    """Return the processes that run and are these, or are of their sessions."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if state != "Z" and ours & {int(entry.name), int(session)}:
                found.append(int(entry.name))
    return found


def _until(holds: Callable[[], object], explorer: Terminal, *, fatal: bool = True) -> None:
    """Wait, and read what the explorer paints, so that it is not held up."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            if fatal:
                raise SystemExit(f"the engine never began:\n{explorer.text}")
            return
        explorer.read(0.01)


def table(found: dict[str, list[Left]]) -> str:
    """Return a line for each kind of kill."""
    lines = [f"{'killed':12}{'times':>7}{'lost, at most':>15}{'torn lines':>12}{'wrong':>7}{'orphans':>9}"]
    for victim, lefts in found.items():
        lost = max(left.lost_ns for left in lefts) / 1e6
        torn, wrong = sum(left.torn for left in lefts), sum(left.wrong for left in lefts)
        orphans = sum(left.orphans for left in lefts)
        lines.append(f"{victim:12}{len(lefts):7}{lost:12.0f} ms{torn:12}{wrong:7}{orphans:9}")
    return "\n".join(lines)


def main() -> int:
    """Kill, print the table, and return 1 where something was lost, torn, wrong or left."""
    parser = argparse.ArgumentParser("python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="of each")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        found = storm(args.kills, args.seed, Path(folder))
    print(table(found))
    return 1 if faults(found) else 0


def faults(found: dict[str, list[Left]]) -> list[Left]:
    """Return the kills that cost more than 100 ms, tore a line, or left a process."""
    all_of_them = [left for lefts in found.values() for left in lefts]
    return [one for one in all_of_them if one.lost_ns > SETTLED_NS or one.torn or one.wrong or one.orphans]


if __name__ == "__main__":
    sys.exit(main())
