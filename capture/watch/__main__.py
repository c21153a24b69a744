"""Watches from beside: a folder of traces, or a server by its address, into one growing recording.

    python -m capture.watch --out FILE --folder DIR
    python -m capture.watch --out FILE --url http://HOST:PORT [--traces DIR] [--windows S] [--every S]

Whoever started it holds its stdin open: it ends with that, on SIGTERM, SIGHUP and SIGINT, and on a line there
that says `quit`.
"""

import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from capture.text import clean
from capture.watch.folder import Folder
from capture.watch.recording import Recording
from capture.watch.server import Server
from capture.watch.traces import Traces

BEAT_S: Final = 3.0  # between two signs of life
NICE: Final = 5  # what is watched goes first


def main() -> int:
    """Watch until the end is asked for; return the exit code."""
    over = threading.Event()
    _end_when_asked(over)
    os.nice(NICE)
    args = _arguments()
    if args.url:
        Server(args, over).follow()
    else:
        _watch_folder(args, over)
    return 0


def _arguments() -> Namespace:
    parser = ArgumentParser("python -m capture.watch")
    parser.add_argument("--out", type=Path, required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--folder", type=Path)
    which.add_argument("--url")
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--windows", type=float, default=0.5)
    parser.add_argument("--every", type=float, default=30.0)
    return parser.parse_args()


def _end_when_asked(over: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: over.set())
    threading.Thread(target=_listen, args=(over,), daemon=True, name="orders").start()


def _listen(over: threading.Event) -> None:
    """Set the event on an order to quit, and when whoever gave orders is gone."""
    for line in sys.stdin.buffer:
        if b"quit" in line:
            break
    over.set()


def _watch_folder(args: Namespace, over: threading.Event) -> None:
    folder = args.folder.absolute()
    name = clean(folder.name or str(folder), 200)
    recording = Recording(args.out, name, {"watched": "folder", "folder": clean(str(folder), 4096)})
    traces = Traces(Folder(folder, but=recording.out), recording)
    beat, told = 0.0, ""
    while not over.is_set():
        began = time.monotonic()
        traces.poll()
        if traces.summary != told:
            told = traces.summary
            recording.mark(told, "windows")
        if began - beat > BEAT_S:
            recording.mark("watching", "heartbeat")
            beat = began
        recording.flush()
        told_gaps(recording)
        over.wait(traces.rest_s)
    recording.end()


def told_gaps(recording: Recording) -> None:
    """Print why the recording has gaps, where it has any."""
    if why := recording.unwritten:
        print(f"tracetui: the recording has gaps: {why}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
