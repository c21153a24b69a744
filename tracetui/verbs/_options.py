"""Options shared by commands, and the steps that go with them: read files, build a look, print a status."""

import re
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from capture.clean_text import clean
from capture.errors import PartialError, UsageError
from tracetui.look import GROUPS, PERS, Look, parse_focus
from tracetui.run_choice import resolve_run_index
from tracetui.samples import resolve_file
from tracetui.ui import THEMES

if TYPE_CHECKING:
    from capture.run import Run
    from tracetui.ui.screen_config import ScreenConfig
    from tracetui.ui.screen_options import ScreenOptions

FIRST_VIEW: Final = "summary"  # of a screen

# Help texts of options that several commands have.
GROUP_HELP: Final = "group rows by this column (default: kernel name)"
PHASE_HELP: Final = "only this phase: prefill, decode, forward, backward …"
LENS_HELP: Final = "lens (clock) of the times: gpu, wall, wait or host"
FORMAT_HELP: Final = "output format (default: table)"
# of reports; repeated here, since importing them takes time
FORMATS: Final = ("table", "json", "csv", "md", "html")
SORT_HELP: Final = "sort by one or more columns (phase,total): numbers descending, text ascending"
LIMIT_HELP: Final = "show at most N rows; a note says how many there are"
WIDTH_HELP: Final = "width in columns (default: terminal width)"

_SIZE_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", re.IGNORECASE)
_BYTES_PER_PREFIX: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_input_options(parser: ArgumentParser, files: str = "+") -> None:
    """Add the files, and how they are read."""
    parser.add_argument(
        "files",
        nargs=files,
        type=resolve_file,
        metavar="FILE",
        help="a profile, a folder of profiles, a URL, @LIST of files, - for stdin, or sample:decode",
    )
    add_reading_options(parser)


def add_reading_options(parser: ArgumentParser) -> None:
    """Add how files are read."""
    parser.add_argument("--no-cache", action="store_true", help="parse the file again, and write no cache")
    parser.add_argument(
        "--no-limits",
        action="store_true",
        help="read files that unpack to more than 200 times their size, and very long streams",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 4 if a part of the input could not be read"
    )


def add_merge_option(parser: ArgumentParser) -> None:
    """Add --merge, for files of several ranks."""
    parser.add_argument(
        "--merge",
        action="store_true",
        help="combine the files of several ranks into one run with a track per rank",
    )


def add_capture_option(parser: ArgumentParser) -> None:
    """Add --capture, for traces that replay CUDA graphs."""
    about = "trace of the captured CUDA graphs: a file, a folder, or none"
    parser.add_argument("--capture", metavar="FILE|DIR", help=f"{about} (default: search next to the trace)")


def add_device_option(parser: ArgumentParser) -> None:
    """Add --device, for sources with several devices."""
    about = "only this device (gpu1, rank 3); rows of the host stay"
    parser.add_argument("--device", dest="only_device", metavar="NAME", help=about)


def add_look_options(parser: ArgumentParser) -> None:
    """Add what a view is asked for: run, order, filter, grouping, phase, lens, steps."""
    add_run_option(parser)
    parser.add_argument("--sort", metavar="COLUMN", help=SORT_HELP)
    parser.add_argument("--reverse", action="store_true", help="reverse the sort order")
    narrow = "only matching names and ops, and terms: op:attn layer:3 share:>5"
    parser.add_argument("--filter", default="", metavar="REGEX", help=narrow)
    parser.add_argument("--group-by", choices=GROUPS, help=GROUP_HELP)
    parser.add_argument("--phase", metavar="PHASE", help=PHASE_HELP)
    parser.add_argument("--lens", metavar="LENS", help=LENS_HELP)
    per = "times and counts in total, per step, or per token (default: total)"
    parser.add_argument("--per", default="total", choices=PERS, help=per)
    parser.add_argument(
        "--focus",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="row to enter, as Enter does: name=attention, layer=3, table=comparison",
    )
    add_steps_option(parser)


def add_run_option(parser: ArgumentParser) -> None:
    """Add --run, for files with several runs."""
    parser.add_argument("--run", dest="which", metavar="N|NAME", help="run to use if a file has several")


def add_steps_option(parser: ArgumentParser) -> None:
    """Add --steps, the range of steps."""
    which = "only these steps: 10:20, 10:, 10; `steady` excludes the warm-up, `all` is every step"
    parser.add_argument("--steps", metavar="FIRST:LAST|steady|all", help=which)


def add_screen_options(
    parser: ArgumentParser, view: str | None = FIRST_VIEW, about: str = "first view"
) -> None:
    """Add the appearance of the screen and its first view."""
    parser.add_argument("--view", default=view, help=about)
    parser.add_argument("--theme", choices=THEMES, help="colours of the screen")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--no-clipboard", action="store_true", help="never write to the terminal's clipboard")
    cast = "record the session to a new file as an asciicast, for asciinema"
    parser.add_argument("--cast", type=Path, metavar="FILE", help=cast)


def build_screen_options(
    args: Namespace, config: "ScreenConfig | None" = None, *, view: str = "diff", **more: Any
) -> "ScreenOptions":
    """Build the options of the screen from the command line, the config file and the terminal, in this order.

    `view` is the first view if none is named. `config` is read here unless the caller has done so; raise
    UsageError for an invalid one.
    """
    from tracetui import saved_choices
    from tracetui.ui import screen_config
    from tracetui.ui.screen_options import ScreenOptions

    config = config or screen_config.read_config()
    config.check_views()
    values: dict[str, Any] = {
        "theme": args.theme or screen_config.choose_theme(config),
        "ascii": args.ascii or screen_config.should_draw_ascii(config),
        "keys": config.keys,
        "columns": {**saved_choices.load_columns(), **config.columns},
        "saves_choices": True,
        "clipboard": not args.no_clipboard,
        "cast": args.cast,
    }
    return ScreenOptions(view=args.view or view, **{**values, **more})


def load_runs(args: Namespace) -> "list[Run]":
    """Load all runs of the named files and print lost data on stderr.

    Raise PartialError for a loss under --strict.
    """
    from capture import activity
    from capture.load_runs import load_all

    activity.add_listener(lambda text: print_status(f"{text} …"))
    runs = load_all(args.files, **build_read_options(args))
    for run in {id(r.log): r for r in runs}.values():
        lost = [n for n in run.log.notices if n.severity != "notice"]
        for n in lost:
            print_status(
                f"{run.log.source}: {n.message} ({n.count:,} times)"
                if n.count > 1
                else f"{run.log.source}: {n.message}"
            )
    if args.strict and any(r.log.lost_data for r in runs):
        raise PartialError("a part of the input could not be read", why="--strict was given")
    return runs


def build_read_options(args: Namespace) -> dict[str, Any]:
    """Return the options of the command line that say how files are read."""
    merge, capture = getattr(args, "merge", False), getattr(args, "capture", None)
    limits = not getattr(args, "no_limits", False)
    device = getattr(args, "only_device", None)
    return {
        "cache": not args.no_cache, "merge": merge, "capture": capture, "limits": limits, "device": device,
    }  # fmt: skip


def select_pair(runs: "Sequence[Run]", which: str | None) -> "list[Run]":
    """Return the two runs for a view of two: one per file, or two of the only file."""
    sources = list(dict.fromkeys(r.log.source for r in runs))
    of_file = [[r for r in runs if r.log.source == source] for source in sources[:2]]
    return (
        [candidates[resolve_run_index(candidates, which)] for candidates in of_file]
        if len(of_file) > 1
        else list(runs[:2])
    )


def build_look(args: Namespace) -> Look:
    """Build the look from the options."""
    look = Look(
        sort=args.sort,
        filter=args.filter,
        group=args.group_by,
        lens=args.lens,
        phase=args.phase,
        per=args.per,
        focus=tuple(parse_focus(text) for text in args.focus),
        limit=getattr(args, "limit", None),
        full_names=True,
    )
    return with_steps(look, args.steps)


def with_steps(look: Look, text: str | None) -> Look:
    """Return the look restricted to the steps of --steps; raise UsageError for an invalid range."""
    if text is None or text == "all":
        return look
    return replace(look, steady=True) if text == "steady" else replace(look, window=_parse_step_range(text))


def _parse_step_range(text: str) -> tuple[int, int]:
    first, colon, last = text.replace("..", ":").partition(":")
    try:
        low = int(first) if first else 0
        high = int(last) if last else (1 << 62 if colon else low)
    except ValueError:
        raise UsageError(
            f"invalid range --steps {text!r}", todo="use 10:20, 10:, 10, steady or all"
        ) from None
    return low, high


def print_status(text: str) -> None:
    """Print a line for the user on stderr, next to the data on stdout."""
    print(f"tracetui: {clean(text, 10_000)}", file=sys.stderr)


def choose_width(args: Namespace) -> tuple[int, bool]:
    """Return the width of the answer, and whether tables are cut to it: only terminals fold lines."""
    width = args.width or shutil.get_terminal_size((120, 40)).columns
    return width, args.width is not None or sys.stdout.isatty()


def has_screen() -> bool:
    """Whether there is a terminal that can show a screen."""
    import os

    try:
        return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    except (AttributeError, ValueError):
        return False


def parse_size(text: str) -> int:
    """Parse a size like 500MB into bytes; raise ArgumentTypeError for anything else."""
    match = _SIZE_PATTERN.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"invalid size {text!r}: use 500MB or 5GB")
    return int(float(match[1]) * _BYTES_PER_PREFIX[match[2].upper()])
