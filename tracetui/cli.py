"""Command line: argv in, exit code out. The only place that prints errors."""

import argparse
import json
import os
import re
import signal
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError, find_nearest, suggest_nearest
from capture.files.addresses import mask_credentials
from capture.stderr_mute import allow_stderr_muting
from tracetui import process_tuning, verbs
from tracetui.verbs import format_examples

INTERNAL_ERROR: Final = 70
EPILOG: Final = """\
exit codes: 0 ok, or nothing got worse · 1 a regression was found · 2 usage · 3 input unreadable ·
4 input partial under --strict, or runs not comparable · 5 the engine failed, or nothing was recorded ·
70 internal error · 130, 143, 129 ended by SIGINT, SIGTERM, SIGHUP
"""
# messages of argparse
_UNKNOWN_OPTION: Final = re.compile(r"unrecognized arguments: (?P<words>.*)", re.DOTALL)
_INVALID_CHOICE: Final = re.compile(
    r"argument (?P<option>\S+): invalid choice: '(?P<word>.*)' \(choose from (?P<known>.*)\)", re.DOTALL
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, which is never zero after an error."""
    _make_streams_lenient()
    allow_stderr_muting()
    process_tuning.defer_gc()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run_command(words)
        sys.stdout.flush()
    except CaptureError as e:
        _print_error(str(e))
        code = e.exit_code
        if _has_json_format(words):
            parts = {"what": e.what, "where": e.where, "why": e.why, "todo": e.todo}
            print(json.dumps({"schema": 1, "error": {"code": code, **parts}}))
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
    except OSError as e:
        _print_error(f"cannot continue: {e.strerror or e}")
        code = 3
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as e:  # a panic of polars is not an Exception
        code = _report_crash(e)
    _flush_stdout()
    return code


def _run_command(argv: list[str]) -> int:
    command, rest = _split_command(argv)
    if command is None:
        return _print_overview(rest)
    if command in verbs.LIVE_WRITERS or "--follow" in rest:
        process_tuning.use_one_polars_thread()
    elif command in verbs.READERS and not {"-h", "--help"} & {*rest}:
        process_tuning.retain_freed_memory()
    chosen = verbs.load_verb(command)
    parser = CommandParser(
        f"tracetui {command}",
        description=verbs.VERBS[command],
        epilog=format_examples(command) + EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen.options(parser)
    return chosen.run(_parse_words(parser, rest))


def _parse_words(parser: ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse options and files in any order; after -- comes a program, if the command takes one."""
    if "--" not in words:
        return parser.parse_intermixed_args(words)
    if not any(action.dest == "command" for action in parser._actions):
        return parser.parse_args(words)
    end = words.index("--")
    args = parser.parse_intermixed_args(words[:end])
    args.command = [*args.command, *words[end + 1 :]]
    return args


def _split_command(argv: list[str]) -> tuple[str | None, list[str]]:
    """Return the command and its arguments: a file alone means `open`, two with --diff mean `diff`."""
    if not argv or argv[0] in ("-h", "--help", "--version"):
        return None, argv
    if argv[0] in verbs.VERBS:
        return argv[0], argv[1:]
    if "--diff" in argv and "diff" in verbs.VERBS:
        return "diff", [a for a in argv if a != "--diff"]
    if argv[0].isalpha() and not Path(argv[0]).exists():
        _reject_misspelt(argv[0])
    return "open", argv


def _reject_misspelt(word: str) -> None:
    """Raise UsageError for a bare word that is not a file but resembles a command or a view."""
    from tracetui.views import list_view_names

    commands = {**{v: f"report {v}" for v in list_view_names()}, **{v: v for v in verbs.VERBS}}
    near = find_nearest(word, commands)
    if near is not None:
        todo = f"did you mean tracetui {commands[near]}?"
        raise UsageError(f"{word} is not a command, and no such file exists", todo=todo)


def _print_overview(argv: list[str]) -> int:
    if not argv:
        from tracetui.verbs._options import has_screen

        if has_screen():
            return _run_command(["open"])
    if "--version" in argv:
        from importlib.metadata import version

        print(f"tracetui {version('tracetui')}")
        return 0
    print("usage: tracetui FILE… | COMMAND …\n\nwatch, open and compare LLM-inference kernel profiles\n")
    for name, help_text in verbs.VERBS.items():
        print(f"  {name:10} {help_text}")
    print("\n`tracetui COMMAND --help` lists its options; a file without a command is opened\n")
    print(EPILOG, end="")
    return 0 if argv else 2


def _make_streams_lenient() -> None:
    """Write question marks for characters that a stream cannot encode; replace missing streams."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _flush_stdout() -> None:
    """Flush stdout; if that fails, point it at /dev/null, so that it does not fail again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _print_error(text: str) -> None:
    """Print a sentence on stderr, without credentials of URLs and control characters of paths."""
    print(f"tracetui: {clean(mask_credentials(text), 10_000)}", file=sys.stderr)


def _has_json_format(argv: Sequence[str]) -> bool:
    """Whether --format json was given, before any `--`."""
    before_command = argv[: argv.index("--")] if "--" in argv else argv
    return "--format=json" in before_command or ("--format", "json") in pairwise(before_command)


def _report_crash(error: BaseException) -> int:
    """Print one line about an internal error, save the traceback, and return the exit code."""
    from capture.files.user_dirs import write_crash_report

    report = "".join(traceback.format_exception(error))
    file = write_crash_report(report)
    details = f"; the details are in {file}" if file else ""
    _print_error(f"internal error: {type(error).__name__}: {clean(str(error), 300)}{details}")
    return INTERNAL_ERROR


class CommandParser(ArgumentParser):
    """Parser of one command that raises UsageError with a suggestion instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for a message of argparse, naming the nearest valid word."""
        help_lists = f"{self.prog} --help lists its options"
        if match := _UNKNOWN_OPTION.fullmatch(message):
            word = next((w for w in match["words"].split() if w.startswith("-")), match["words"])
            valid = [*self._option_string_actions]
            todo = suggest_nearest(word.partition("=")[0], valid, help_lists)
            raise UsageError(f"{self.prog} has no option {word}", todo=todo)
        if match := _INVALID_CHOICE.fullmatch(message):
            valid = re.findall(r"[\w.-]+", match["known"])
            todo = suggest_nearest(match["word"], valid, f"choose one of {', '.join(valid)}")
            raise UsageError(f"{match['option'].rpartition('/')[2]} takes no {match['word']!r}", todo=todo)
        raise UsageError(message, todo=help_lists)
