"""`tracetui replay FILE`: play a recording as if it were live."""

import re
import tempfile
import threading
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from capture.source import Source
from tracetui.samples import resolve_file
from tracetui.verbs import _options

MAX_PAUSE_S: Final = 5.0  # longer pauses of the recording are cut to this
_START_TIME: Final = re.compile(rb'"t":(\d+)')


def options(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=resolve_file, metavar="FILE", help="a native recording")
    about = "speed relative to the original"
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help=about)
    _options.add_screen_options(parser)


def run(args: Namespace) -> int:
    """Show the replay and return the exit code."""
    if args.speed <= 0:
        raise UsageError(f"invalid --speed {args.speed}", todo="give a number above zero")
    if not _options.has_screen():
        raise UsageError("a replay needs a terminal", todo=f"tracetui report summary {args.file}")
    _check_native(args.file)
    from tracetui.ui.app import run as show

    replay = RecordingReplay(args.file, args.speed)
    replay.start()
    try:
        return show([str(replay.path)], _options.build_screen_options(args, follow=True))
    finally:
        replay.stop()


def _check_native(file: str) -> None:
    """Raise UsageError for any other format: only native lines carry their times."""
    from capture.loaders import native

    if not native.sniff(Source.from_path(file).head):
        todo = "export it first: tracetui export FILE -o prof.jsonl"
        raise UsageError(f"{file} is not a native recording", todo=todo)


class RecordingReplay:
    """Writes the lines of a recording to a temporary file at their original pace, in a thread."""

    def __init__(self, path: str | Path, speed: float) -> None:
        self._source = Source.from_path(path)
        self._speed = speed
        self._stop = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="tracetui-replay-")
        self.path = Path(self._folder.name) / self._source.path.name
        self.path.touch(0o600)
        self._writer = threading.Thread(target=self._write, daemon=True, name="replay")

    def start(self) -> None:
        self._writer.start()

    def stop(self) -> None:
        """Stop writing and remove the file."""
        self._stop.set()
        self._writer.join(1.0)
        self._folder.cleanup()

    def _write(self) -> None:
        before: int | None = None
        with self.path.open("ab", buffering=0) as out:
            for _, line in self._source.iter_lines():
                start = _START_TIME.search(line)
                if start and before is not None:
                    seconds = (int(start[1]) - before) / 1e9 / self._speed
                    self._stop.wait(min(max(0.0, seconds), MAX_PAUSE_S))
                if self._stop.is_set():
                    return
                before = int(start[1]) if start else before
                out.write(line + b"\n")
