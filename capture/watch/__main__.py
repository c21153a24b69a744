"""Record a folder of traces, or a server by its address, into one growing recording.

    python -m capture.watch --out FILE --folder DIR
    python -m capture.watch --out FILE --url URL [--traces DIR] [--steps N] [--windows S] [--every S]
        [--client-log FILE]

It ends when stdin closes, on SIGTERM, SIGHUP and SIGINT, and on the line `quit` on stdin.
"""

import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.watch.folder_watcher import FolderWatcher
from capture.watch.server_watcher import ServerWatcher
from capture.watch.trace_folder import TraceFolder
from capture.watch.watch_recording import WatchRecording

NICE: Final = 5  # the watched program goes first


def main() -> int:
    """Watch until asked to end; return the exit code."""
    over = threading.Event()
    _end_when_asked(over)
    os.nice(NICE)
    args = _parse_arguments()
    if args.url:
        ServerWatcher(args, over).follow()
    else:
        _watch_folder(args, over)
    return 0


def _parse_arguments() -> Namespace:
    parser = ArgumentParser("python -m capture.watch")
    parser.add_argument("--out", type=Path, required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--folder", type=Path)
    which.add_argument("--url")
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--client-log", type=Path, action="append", default=[])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--windows", type=float, default=0.5)
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--silence", type=float, default=0.01)
    return parser.parse_args()


def _end_when_asked(over: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: over.set())
    threading.Thread(target=_listen, args=(over,), daemon=True, name="orders").start()


def _listen(over: threading.Event) -> None:
    """Set the event on the line `quit`, or when stdin closes."""
    for line in sys.stdin.buffer:
        if b"quit" in line:
            break
    over.set()


def _watch_folder(args: Namespace, over: threading.Event) -> None:
    folder = args.folder.absolute()
    name = clean(folder.name or str(folder), 200)
    recording = WatchRecording(args.out, name, {"watched": "folder", "folder": clean(str(folder), 4096)})
    traces = FolderWatcher(TraceFolder(folder, excluded=recording.out), recording)
    last_summary = ""
    while not over.is_set():
        traces.poll()
        if traces.summary != last_summary:
            last_summary = traces.summary
            recording.mark(last_summary, "windows")
        recording.keep_alive()
        over.wait(traces.pause_s)
    recording.end()


if __name__ == "__main__":
    sys.exit(main())
