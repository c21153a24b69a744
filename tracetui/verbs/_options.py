"""Options shared by commands, and the steps that go with them: read files, build a look, print a status."""

import os
import re
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from capture.clean_text import clean
from capture.device_roofs import read_roof
from capture.errors import PartialError, UsageError
from capture.model_work.model_config import ConfigChoice
from tracetui.look import GROUPS, PERS, Look, Price, parse_focus
from tracetui.samples import resolve_file
from tracetui.ui import THEMES

if TYPE_CHECKING:
    from capture.run import Run
    from tracetui.report_formats import ReportContent
    from tracetui.ui.screen_config import ScreenConfig
    from tracetui.ui.screen_options import ScreenOptions

FIRST_VIEW: Final = "summary"  # of a screen

# of reports; repeated here, since importing them takes time
FORMATS: Final = ("table", "json", "csv", "md", "html")

MAX_TABLE_ROWS: Final = 1000  # without --limit: aligning 60,000 takes 10 s, and nobody reads them
READING_OPTIONS: Final = ("--no-cache", "--no-limits", "--strict")
CLIENT_LOG: Final[dict[str, Any]] = {
    "action": "append", "default": [], "metavar": "FILE",
    "help": "log of the requests that were served meanwhile, of a client or the server (tracetui load writes "
    "one): for the view requests",
}  # fmt: skip
WORK_OPTIONS: Final = (
    "--capture",
    "--roof",
    "--config",
    "--tp",
    "--ep",
    "--client-log",
)  # what work and its bound are
SCREEN_OPTIONS: Final = ("--theme", "--ascii", "--no-clipboard", "--cast")
LOOK_OPTIONS: Final = (
    "--run", "--sort", "--reverse", "--filter", "--group-by", "--phase", "--lens", "--per", "--focus",
    "--steps",
)  # fmt: skip


_PRICE_PATTERN: Final = re.compile(r"([$€£¥]?)(\d{1,9}(?:\.\d{1,9})?)/h", re.ASCII)


def read_rank_count(text: str) -> int:
    """Return a number of ranks; raise ArgumentTypeError for less than one."""
    if not text.isdecimal() or not 0 < int(text[:9]) <= 1 << 20:
        raise ArgumentTypeError(f"expected a number of ranks, not {clean(text, 40)!r}")
    return int(text)


def read_price(text: str) -> Price:
    """Parse `2.50/h` or `$2.50/h`; raise ArgumentTypeError for anything else, and for zero."""
    match = _PRICE_PATTERN.fullmatch(text.strip())
    if match is None or not float(match[2]):
        raise ArgumentTypeError(f"expected a price per hour such as 2.50/h, not {clean(text, 40)!r}")
    return Price(float(match[2]), match[1])


# Options that several commands have, with the arguments of `add_argument`.
SHARED_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "--no-cache": {"action": "store_true", "help": "parse the file again, and write no cache"},
    "--no-limits": {
        "action": "store_true",
        "help": "read files that unpack to more than 200 times their size, and very long streams",
    },
    "--strict": {"action": "store_true", "help": "exit with 4 if a part of the input could not be read"},
    "--merge": {
        "action": "store_true",
        "help": "combine the files of several ranks into one run with a track per rank",
    },
    "--capture": {
        "metavar": "FILE|DIR",
        "help": "trace of the captured CUDA graphs: a file, a folder, or none (default: search next to the "
        "trace)",
    },
    "--device": {
        "dest": "only_device",
        "metavar": "NAME",
        "help": "only this device (gpu1, rank 3); rows of the host stay",
    },
    "--roof": {
        "metavar": "ROOF",
        "help": "peak rates to compare with: mem=3.35TB/s,bf16=989T, a file of such items, or the name of a "
        "device (doctor --roof NAME shows it)",
    },
    "--config": {
        "metavar": "FILE",
        "help": "config.json of the model, which gives the work of kernels without shapes, or none (default: "
        "search next to the trace and in the cache of Hugging Face)",
    },
    "--tp": {"type": read_rank_count, "metavar": "N", "help": "ranks that share each layer of that model"},
    "--ep": {"type": read_rank_count, "metavar": "N", "help": "ranks that share its experts"},
    "--client-log": CLIENT_LOG,
    "--cost": {
        "type": read_price,
        "metavar": "PRICE",
        "help": "what the machine costs, such as 2.50/h: the cost of a million tokens is shown",
    },
    "--on": {
        "metavar": "WHERE",
        "help": "one answer about all files, computed on local:N processes, dask://HOST:PORT or "
        "ray://HOST:PORT|auto",
    },
    "--hosts": {
        "metavar": "FILE",
        "help": "file with a line per rank: its number or file, its host, and optionally its switch",
    },
    "--run": {"dest": "which", "metavar": "N|NAME", "help": "run to use if a file has several"},
    "--sort": {
        "metavar": "COLUMN",
        "help": "sort by one or more columns (phase,total): numbers descending, text ascending",
    },
    "--reverse": {"action": "store_true", "help": "reverse the sort order"},
    "--filter": {
        "default": "",
        "metavar": "REGEX",
        "help": "only matching names and ops, and terms: op:attn layer:3 share:>5",
    },
    "--group-by": {"choices": GROUPS, "help": "group rows by this column (default: kernel name)"},
    "--phase": {"metavar": "PHASE", "help": "only this phase: prefill, decode, forward, backward …"},
    "--lens": {"metavar": "LENS", "help": "lens (clock) of the times: gpu, wall, wait or host"},
    "--per": {
        "default": "total",
        "choices": PERS,
        "help": "times and counts in total, per step, or per token (default: total)",
    },
    "--focus": {
        "action": "append",
        "default": [],
        "metavar": "COLUMN=VALUE",
        "help": "row to enter, as Enter does: name=attention, layer=3, table=comparison",
    },
    "--steps": {
        "metavar": "FIRST:LAST|steady|all",
        "help": "only these steps: 10:20, 10:, 10; `steady` excludes the warm-up, `all` is every step",
    },
    "--limit": {
        "type": int,
        "metavar": "N",
        "help": "show at most N rows (a table: 1000); a note says how many there are",
    },
    "--width": {"type": int, "help": "width in columns (default: terminal width)"},
    "--theme": {"choices": THEMES, "help": "colours of the screen"},
    "--ascii": {"action": "store_true", "help": "draw with ASCII characters only"},
    "--no-clipboard": {"action": "store_true", "help": "never write to the terminal's clipboard"},
    "--cast": {
        "type": Path,
        "metavar": "FILE",
        "help": "record the session to a new file as an asciicast, for asciinema",
    },
}

# the parts of a command's help in which these stand; all others are about the input
_HELP_GROUPS: Final = {
    **dict.fromkeys((*LOOK_OPTIONS, "--limit", "--cost"), "what is shown"),
    **dict.fromkeys(("--format", "--width"), "output"),
    **dict.fromkeys(("--view", *SCREEN_OPTIONS), "screen"),
}

_SIZE_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)B?", re.IGNORECASE)
_BYTES_PER_PREFIX: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_options(parser: ArgumentParser, *names: str) -> None:
    """Add some of SHARED_OPTIONS, in this order."""
    for name in names:
        find_group(parser, _HELP_GROUPS.get(name, "input")).add_argument(name, **SHARED_OPTIONS[name])


def find_group(parser: ArgumentParser, title: str) -> _ArgumentGroup:
    """Return the part of the help with this title, a new one if there is none."""
    groups = (group for group in parser._action_groups if group.title == title)
    return next(groups, None) or parser.add_argument_group(title)


def add_input_options(parser: ArgumentParser, files: str, *names: str) -> None:
    """Add the files, as many as `files` says, how they are read, and some of SHARED_OPTIONS."""
    about = "a profile, a folder of profiles, a URL, @LIST of files, - for stdin, or sample:decode"
    parser.add_argument("files", nargs=files, type=resolve_file, metavar="FILE", help=about)
    add_options(parser, *READING_OPTIONS, *names)


def add_format_option(parser: ArgumentParser, *, default: str | None = "table") -> None:
    """Add --format; without a default the command shows a screen."""
    about = "output format (default: table)" if default else "print in this format (default: show a screen)"
    find_group(parser, "output").add_argument("--format", choices=FORMATS, default=default, help=about)


def add_screen_options(
    parser: ArgumentParser, view: str | None = FIRST_VIEW, about: str = "first view"
) -> None:
    """Add the first view of the screen, and its appearance."""
    find_group(parser, "screen").add_argument("--view", default=view, help=about)
    add_options(parser, *SCREEN_OPTIONS)


def build_screen_options(
    args: Namespace, appearance: "ScreenConfig | None" = None, *, view: str = "diff", **more: Any
) -> "ScreenOptions":
    """Build the options of the screen from the command line, the config file and the terminal, in this order.

    `view` is the first view if none is named. `appearance`, of the config file, is read here unless the
    caller has done so; raise UsageError for an invalid one.
    """
    from tracetui import saved_choices
    from tracetui.ui import screen_config
    from tracetui.ui.screen_options import ScreenOptions

    appearance = appearance or screen_config.read_config()
    appearance.check_views()
    values: dict[str, Any] = {
        "view": args.view or view,
        "theme": args.theme or screen_config.choose_theme(appearance),
        "ascii": args.ascii or screen_config.should_draw_ascii(appearance),
        "keys": appearance.keys,
        "columns": {**saved_choices.load_columns(), **appearance.columns},
        "saves_choices": True,
        "clipboard": not args.no_clipboard,
        "cast": args.cast,
    }
    return ScreenOptions(**values | more)


def load_runs(args: Namespace, *, joins_ranks: bool = True) -> "list[Run]":
    """Load all runs of the named files and print lost data on stderr; --run selects one of the ranks' own.

    Raise PartialError for a loss under --strict.
    """
    from capture import tasks
    from capture.load_runs import load_all

    tasks.add_listener(lambda text: print_status(f"{text} …"))
    joins_ranks &= not getattr(args, "which", None)
    runs = load_all(args.files, joins_ranks=joins_ranks, **build_read_options(args))
    for run in {id(r.log): r for r in runs}.values():
        for n in run.log.notices:
            if n.severity != "notice":
                times = f" ({n.count:,} times)" if n.count > 1 else ""
                print_status(f"{run.log.source}: {n.message}{times}")
    if args.strict and any(r.log.lost_data for r in runs):
        raise PartialError("a part of the input could not be read", why="--strict was given")
    return runs


def build_read_options(args: Namespace) -> dict[str, Any]:
    """Return the options of the command line that say how files are read."""
    return {
        "cache": not args.no_cache,
        "merge": getattr(args, "merge", False),
        "capture": getattr(args, "capture", None),
        "limits": not getattr(args, "no_limits", False),
        "device": getattr(args, "only_device", None),
        "roof": read_roof(args.roof) if getattr(args, "roof", None) else None,
        "client_logs": getattr(args, "client_log", None) or (),
        "config": ConfigChoice(*(getattr(args, name, None) for name in ("config", "tp", "ep"))),
    }


def select_pair(runs: "Sequence[Run]", which: str | None) -> "list[Run]":
    """Return the two runs for a view of two: one per file, or two of the only file."""
    from capture.load_runs import resolve_run_index

    sources = list(dict.fromkeys(r.log.source for r in runs))
    if len(sources) < 2:
        return list(runs[:2])
    of_file = ([r for r in runs if r.log.source == source] for source in sources[:2])
    return [candidates[resolve_run_index(candidates, which)] for candidates in of_file]


def load_for_view(args: Namespace, run_count: int) -> "tuple[Sequence[Run], int]":
    """Load the runs for a view of so many runs, and the index of the selected one."""
    from capture.load_runs import resolve_run_index

    runs = load_runs(args, joins_ranks=run_count == 1)
    return (
        (select_pair(runs, args.which), 0) if run_count == 2 else (runs, resolve_run_index(runs, args.which))
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
        price=getattr(args, "cost", None),
        full_names=True,
    )
    return with_steps(look, args.steps)


def with_steps(look: Look, text: str | None) -> Look:
    """Return the look restricted to the steps of --steps; raise UsageError for an invalid range."""
    if text is None or text == "all":
        return look
    if text == "steady":
        return replace(look, steady=True)
    first, colon, last = text.replace("..", ":").partition(":")
    try:
        low = int(first or 0)
        high = int(last) if last else 1 << 62 if colon else low
    except ValueError:
        todo = "use 10:20, 10:, 10, steady or all"
        raise UsageError(f"invalid range --steps {text!r}", todo=todo) from None
    return replace(look, window=(low, high))


def print_status(text: str) -> None:
    """Print a line for the user on stderr, next to the data on stdout."""
    print(f"tracetui: {clean(text, 10_000)}", file=sys.stderr)


def choose_width(args: Namespace) -> tuple[int, bool]:
    """Return the width of the answer, and whether tables are cut to it: only terminals fold lines."""
    width = args.width or shutil.get_terminal_size((120, 40)).columns
    return width, args.width is not None or sys.stdout.isatty()


def may_colour() -> bool:
    """Whether the answer goes to a terminal whose user wants colours."""
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
    return sys.stdout.isatty() and not is_plain


def has_screen() -> bool:
    """Whether there is a terminal that can show a screen."""
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


def parse_percent(text: str) -> float:
    """Parse 3% or 3 as 0.03; raise UsageError for anything else."""
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"invalid percentage {text!r}", todo="use 3%") from None


def format_sorted(args: Namespace, content: "ReportContent") -> str:
    """Format an answer in --format and --width, sorted by --sort; a table of at most MAX_TABLE_ROWS."""
    from tracetui.report_formats import format_content, resolve_sort

    look, (width, cut) = content.look, choose_width(args)
    is_table = (args.format or "table") == "table" and content.view.draw is None
    if is_table and getattr(args, "limit", 0) is None and content.answer.rows.height > MAX_TABLE_ROWS:
        look = replace(look, limit=MAX_TABLE_ROWS)
        note = f"a table has at most {MAX_TABLE_ROWS:,} rows: --limit N or --format csv shows more"
        content = replace(content, answer=replace(content.answer, notes=(*content.answer.notes, note)))
    if args.sort:
        look = resolve_sort(replace(look, sort=args.sort), content.answer.rows, args.reverse)
    laid_out = replace(content, look=look, width=width, cut=cut, colours=may_colour())
    return format_content(laid_out, args.format or "table")
