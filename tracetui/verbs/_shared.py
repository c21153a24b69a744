"""Options and steps that several commands have in common."""

import re
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from capture.errors import PartialError, UsageError
from capture.text import clean
from tracetui.chosen import choose
from tracetui.look import GROUPS, PERS, Look, focus_of
from tracetui.samples import resolved
from tracetui.ui import THEMES

if TYPE_CHECKING:
    from capture.run import Run
    from tracetui.ui.config import Config
    from tracetui.ui.options import Options

VIEW: Final = "summary"  # that a screen begins with

# What options mean that several commands have.
GROUP: Final = "what a row stands for; the name of a kernel where it is not said"
PHASE: Final = "only one phase: prefill, decode, forward, backward …"
LENS: Final = "which stopwatch: gpu, wall, wait or host"
FORMAT: Final = "how the answer is written; a table where it is not said"
FORMATS: Final = ("table", "json", "csv", "md", "html")  # of reports, told without loading them
SORT: Final = "sort by a column, or several (phase,total): numbers from the largest, text from A"
LIMIT: Final = "at most N rows; a cut is said"
WIDTH: Final = "columns of the table; those of the terminal where it is not said"

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", re.IGNORECASE)
_FACTOR: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def input_options(parser: ArgumentParser, files: str = "+") -> None:
    """Declare the files, and how they are read."""
    parser.add_argument(
        "files",
        nargs=files,
        type=resolved,
        metavar="FILE",
        help="a profile, a folder of profiles, a URL, @LIST of files, - for stdin, or sample:decode",
    )
    reading_options(parser)


def reading_options(parser: ArgumentParser) -> None:
    """Declare how files are read."""
    parser.add_argument("--no-cache", action="store_true", help="parse anew, write no cache")
    parser.add_argument(
        "--no-limits",
        action="store_true",
        help="read on where a file unpacks to more than 200 times its size, or a stream is very long",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit 4 when a part of the input could not be read"
    )


def merge_option(parser: ArgumentParser) -> None:
    """Declare --merge."""
    parser.add_argument(
        "--merge", action="store_true", help="runs of one rank each become one run, a track a rank"
    )


def capture_option(parser: ArgumentParser) -> None:
    """Declare --capture."""
    about = "what was captured into the graphs that a trace replays: a file, a folder, or none"
    parser.add_argument(
        "--capture", metavar="FILE|DIR", help=f"{about}; else it is looked for beside the trace"
    )


def device_option(parser: ArgumentParser) -> None:
    """Declare --device."""
    about = "of several devices only this one: gpu1, rank 3; the host's rows stay"
    parser.add_argument("--device", dest="only_device", metavar="NAME", help=about)


def look_options(parser: ArgumentParser) -> None:
    """Declare what a view is asked: run, order, filter, grouping, phase, lens, steps."""
    run_option(parser)
    parser.add_argument("--sort", metavar="COLUMN", help=SORT)
    parser.add_argument("--reverse", action="store_true", help="sort the other way round")
    narrow = "only names and ops that fit, and terms: op:attn layer:3 share:>5"
    parser.add_argument("--filter", default="", metavar="REGEX", help=narrow)
    parser.add_argument("--group-by", choices=GROUPS, help=GROUP)
    parser.add_argument("--phase", metavar="PHASE", help=PHASE)
    parser.add_argument("--lens", metavar="LENS", help=LENS)
    per = "times and counts of everything, of a step, or of a token; total where it is not said"
    parser.add_argument("--per", default="total", choices=PERS, help=per)
    parser.add_argument(
        "--focus",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="what Enter would enter: name=attention, layer=3, table=comparison",
    )
    steps_option(parser)


def run_option(parser: ArgumentParser) -> None:
    """Declare --run."""
    parser.add_argument("--run", dest="which", metavar="N|NAME", help="one run, where a file holds several")


def steps_option(parser: ArgumentParser) -> None:
    """Declare --steps."""
    which = "only these steps: 10:20, 10:, 10; `steady` leaves out the warm-up, `all` is every step"
    parser.add_argument("--steps", metavar="FIRST:LAST|steady|all", help=which)


def screen_options(
    parser: ArgumentParser, view: str | None = VIEW, about: str = "the view to begin with"
) -> None:
    """Declare how the screen looks and with which view it begins."""
    parser.add_argument("--view", default=view, help=about)
    parser.add_argument("--theme", choices=THEMES, help="colours of the screen")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--no-clipboard", action="store_true", help="never write to the terminal's clipboard")
    cast = "also write the session to a new file as an asciicast, for asciinema"
    parser.add_argument("--cast", type=Path, metavar="FILE", help=cast)


def screen(args: Namespace, wanted: "Config | None" = None, *, view: str = "diff", **more: Any) -> "Options":
    """Return what the command line asks of the screen; what it leaves out the config file says, or the
    terminal; `view` is the first where none is named. The file is read here unless that was done before;
    raise UsageError for one that is wrong.
    """
    from tracetui import kept_columns
    from tracetui.ui import config
    from tracetui.ui.options import Options

    wanted = wanted or config.read()
    wanted.check_views()
    own: dict[str, Any] = {
        "theme": args.theme or config.theme(wanted),
        "ascii": args.ascii or config.draws_ascii(wanted),
        "keys": wanted.keys,
        "columns": {**kept_columns.kept(), **wanted.columns},
        "keeps": True,
        "clipboard": not args.no_clipboard,
        "cast": args.cast,
    }
    return Options(view=args.view or view, **{**own, **more})


def load(args: Namespace) -> "list[Run]":
    """Return all runs of the files that were named; print on stderr what was lost. Raise PartialError for a
    loss under --strict.
    """
    from capture import activity
    from capture.open import load_all

    activity.listen(lambda words: say(f"{words} …"))
    runs = load_all(args.files, **ways(args))
    for run in {id(r.log): r for r in runs}.values():
        lost = [n for n in run.log.notices if n.severity != "notice"]
        for n in lost:
            say(
                f"{run.log.source}: {n.message} ({n.count:,} times)"
                if n.count > 1
                else f"{run.log.source}: {n.message}"
            )
    if args.strict and any(r.log.lost_data for r in runs):
        raise PartialError("a part of the input could not be read", why="--strict was given")
    return runs


def ways(args: Namespace) -> dict[str, Any]:
    """Return how files are read, as the options say, for a loader or for the screen."""
    merge, capture = getattr(args, "merge", False), getattr(args, "capture", None)
    limits = not getattr(args, "no_limits", False)
    device = getattr(args, "only_device", None)
    return {
        "cache": not args.no_cache, "merge": merge, "capture": capture, "limits": limits, "device": device,
    }  # fmt: skip


def pair(runs: "Sequence[Run]", which: str | None) -> "list[Run]":
    """Return the two runs that a view of two speaks of: one of each file, or two of the only one."""
    sources = list(dict.fromkeys(r.log.source for r in runs))
    of_file = [[r for r in runs if r.log.source == source] for source in sources[:2]]
    return [own[choose(own, which)] for own in of_file] if len(of_file) > 1 else list(runs[:2])


def look(args: Namespace) -> Look:
    """Return the look that the options ask for."""
    asked = Look(
        sort=args.sort,
        filter=args.filter,
        group=args.group_by,
        lens=args.lens,
        phase=args.phase,
        per=args.per,
        focus=tuple(focus_of(text) for text in args.focus),
        limit=getattr(args, "limit", None),
        full_names=True,
    )
    return at_steps(asked, args.steps)


def at_steps(look: Look, text: str | None) -> Look:
    """Return the look at the steps that --steps asks for; raise UsageError where it says none."""
    if text is None or text == "all":
        return look
    return replace(look, steady=True) if text == "steady" else replace(look, window=_window(text))


def _window(text: str) -> tuple[int, int]:
    first, colon, last = text.replace("..", ":").partition(":")
    try:
        low = int(first) if first else 0
        high = int(last) if last else (1 << 62 if colon else low)
    except ValueError:
        raise UsageError(
            f"--steps {text!r} is no range", todo="write it like 10:20, 10:, 10, steady or all"
        ) from None
    return low, high


def say(text: str) -> None:
    """Print a line for the person on stderr, beside the data."""
    print(f"tracetui: {clean(text, 10_000)}", file=sys.stderr)


def room(args: Namespace) -> tuple[int, bool]:
    """Return how wide the answer may be, and whether a table is cut to it: a pipe folds no lines."""
    width = args.width or shutil.get_terminal_size((120, 40)).columns
    return width, args.width is not None or sys.stdout.isatty()


def has_screen() -> bool:
    """Tell whether there is a terminal that can show a screen."""
    import os

    try:
        return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    except (AttributeError, ValueError):
        return False


def size(text: str) -> int:
    """Return the bytes of a size as people write it; raise ArgumentTypeError for what is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no size: write it like 500MB or 5GB")
    return int(float(match[1]) * _FACTOR[match[2].upper()])
