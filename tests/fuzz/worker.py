"""A process that works through inputs under limits: SEED FIRST STEP COUNT FOLDER SAMPLES are its arguments.

It prints each fault as a line of JSON, and now and then its counts; a case that outlives its limits ends it.
"""

import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

SECONDS: Final = 2.0  # of processor time that a case may take
MEMORY: Final = 512 << 20  # bytes of address space beyond what the program takes before the input
REPORT_EVERY: Final = 1.0
INPUT_FILE: Final = "at"  # the number of the input at work
PLACE_FILE: Final = "place"  # where it was when its time was over
STDERR_FILE: Final = "stderr"  # what libraries print


def main(words: list[str]) -> int:
    """Work through inputs FIRST, FIRST + STEP … until COUNT are done, and return the exit code."""
    seed, first, step, count = (int(word) for word in words[:4])
    folder, samples = Path(words[4]), words[5] == "1"
    silence(folder)
    from capture.stderr_mute import allow_stderr_muting
    from tests.fuzz.inputs import Inputs  # heavy imports belong behind the redirection of stderr

    allow_stderr_muting()  # as the command line says of itself
    inputs = Inputs(seed, samples=samples)
    inputs.warm_up(folder)
    gc.collect()
    gc.freeze()  # modules need no looking through any more
    set_limits(folder)
    at_work = os.open(folder / INPUT_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    counts: Counter[str] = Counter()
    told = time.monotonic()
    for number in range(first, first + step * count, step):
        os.pwrite(at_work, number.to_bytes(8, "little"), 0)
        make_room()
        loader, outcomes = inputs.run(number, folder)
        for outcome in outcomes:
            counts[f"{loader} {outcome.answer} {outcome.form or '-'} {outcome.ended}"] += 1
            if outcome.ended == "fault":
                say({"fault": outcome.place, "details": outcome.details, "input": number, "loader": loader})
        if time.monotonic() - told > REPORT_EVERY:
            say({"counts": counts})
            counts.clear()
            told = time.monotonic()
    say({"counts": counts})
    return 0


def say(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def silence(folder: Path) -> None:
    """Send what anything prints on stderr to a file, where it can be found."""
    errors = os.open(folder / STDERR_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)
    os.dup2(errors, 2)


def set_limits(folder: Path) -> None:
    """Let the kernel end the process when a case takes too much; its place is written down before."""
    place = (folder / PLACE_FILE).open("w")
    faulthandler.register(signal.SIGPROF, file=place, all_threads=False, chain=True)
    faulthandler.enable(file=place, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def make_room() -> None:
    """Let the next input take its memory beyond what the process has by now."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))


def start_clock() -> None:
    """Give the next case its time."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)


def stop_clock() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
