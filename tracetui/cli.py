"""The command line: argv in, an exit code out; the only place that prints an error."""

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from capture.addresses import masked
from capture.errors import CaptureError, UsageError
from capture.nearest import nearest
from capture.text import clean
from capture.unheard import own_process
from tracetui import garbage, verbs
from tracetui.guides.examples import epilog
from tracetui.threads import keep_memory, leave_the_cores
from tracetui.verbs._parser import Parser

INTERNAL_ERROR: Final = 70
EPILOG: Final = """\
exit codes: 0 ok, or nothing got worse · 1 a regression was found · 2 usage · 3 input unreadable ·
4 input partial under --strict, or runs not comparable · 5 the engine failed, or nothing was watched ·
70 a fault of tracetui · 130, 143, 129 ended by SIGINT, SIGTERM, SIGHUP
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, which is never zero after an error."""
    _tame_streams()
    own_process()
    garbage.put_off()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except CaptureError as e:
        _tell(str(e))
        code = e.exit_code
        if _asks_for_json(sys.argv[1:] if argv is None else argv):
            _tell_json(e)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
    except OSError as e:
        _tell(f"cannot go on: {e.strerror or e}")
        code = 3
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as e:  # polars panics with what is no Exception
        code = _crashed(e)
    _close_stdout()
    return code


def _run(argv: list[str]) -> int:
    command, rest = _command(argv)
    if command is None:
        return _overview(rest)
    if command in verbs.BESIDE or "--follow" in rest:
        leave_the_cores()
    elif command in verbs.ASKING and not {"-h", "--help"} & {*rest}:
        keep_memory()
    chosen = verbs.verb(command)
    parser = Parser(
        f"tracetui {command}",
        description=verbs.VERBS[command],
        epilog=epilog(command) + EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen.options(parser)
    # options may stand before files, as they do; what stands behind -- is a program's
    parse = parser.parse_args if "--" in rest else parser.parse_intermixed_args
    return chosen.run(parse(rest))


def _command(argv: list[str]) -> tuple[str | None, list[str]]:
    """Return the verb and the rest: a file alone means open, two with --diff mean diff."""
    if not argv or argv[0] in ("-h", "--help", "--version"):
        return None, argv
    if argv[0] in verbs.VERBS:
        return argv[0], argv[1:]
    if "--diff" in argv and "diff" in verbs.VERBS:
        return "diff", [a for a in argv if a != "--diff"]
    if argv[0].isalpha() and not Path(argv[0]).exists():
        _refuse_misspelt(argv[0])
    return "open", argv


def _refuse_misspelt(word: str) -> None:
    """Raise UsageError for a bare word that is no file but nearly a command or a view."""
    from tracetui.views import VIEWS

    commands = {**{v: f"report {v}" for v in VIEWS}, **{v: v for v in verbs.VERBS}}
    near = nearest(word, commands)
    if near is not None:
        todo = f"did you mean tracetui {commands[near]}?"
        raise UsageError(f"{word} is no command, and no file here", todo=todo)


def _overview(argv: list[str]) -> int:
    if not argv:
        from tracetui.verbs._shared import has_screen

        if has_screen():
            return _run(["open"])
    if "--version" in argv:
        from importlib.metadata import version

        print(f"tracetui {version('tracetui')}")
        return 0
    print("usage: tracetui FILE… | COMMAND …\n\nwatch, open and compare LLM-inference kernel profiles\n")
    for name, help_text in verbs.VERBS.items():
        print(f"  {name:10} {help_text}")
    print(
        f"\n`tracetui COMMAND --help` tells its options; a file without a command is opened\n\n{EPILOG}",
        end="",
    )
    return 0 if argv else 2


def _tame_streams() -> None:
    """Make streams write question marks for what they cannot encode, and replace missing ones."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123


def _close_stdout() -> None:
    """Flush stdout; where that fails, let it not fail a second time at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _tell(text: str) -> None:
    """Print a sentence on stderr, without the credentials of a URL and the control characters of a path."""
    print(f"tracetui: {clean(masked(text), 10_000)}", file=sys.stderr)


def _asks_for_json(argv: Sequence[str]) -> bool:
    """Tell whether a program reads the answer; what stands behind -- is another program's."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    return "--format=json" in own or ("--format", "json") in pairwise(own)


def _tell_json(error: CaptureError) -> None:
    parts = {"what": error.what, "where": error.where, "why": error.why, "todo": error.todo}
    print(json.dumps({"schema": 1, "error": {"code": error.exit_code, **parts}}))


def _crashed(error: BaseException) -> int:
    """Print one sentence about a fault of our own, keep the traceback in a file, return the exit code."""
    from capture.places import crash_file

    report = "".join(traceback.format_exception(error))
    place = crash_file(report)
    details = f"; the details are in {place}" if place else ""
    _tell(f"a fault of its own: {type(error).__name__}: {clean(str(error), 300)}{details}")
    return INTERNAL_ERROR
