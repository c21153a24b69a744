"""`tracetui diff A [B]`: what changed between two runs, and a gate for CI."""

import json
import shutil
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from capture.errors import UsageError
from capture.run import Run
from tracetui.linking import kept
from tracetui.look import GROUPS, RANKINGS, Link, Look, Terms
from tracetui.verbs import _shared

NOT_COMPARABLE = 4


def options(parser: ArgumentParser) -> None:
    _shared.input_options(parser)
    _shared.merge_option(parser)
    parser.add_argument("--run-a", metavar="N|NAME", help="which run of the first input (or of the only one)")
    parser.add_argument(
        "--run-b", metavar="N|NAME", help="which run of the second input (or of the only one)"
    )
    _shared.screen_options(parser, None)
    parser.add_argument("--stats", choices=("kernel", "cycle"), default="kernel")
    parser.add_argument("--rank", choices=RANKINGS, default="suspicion", help="order of cycle statistics")
    parser.add_argument("--align", choices=("context", "step"), default="context")
    parser.add_argument("--threshold", default="1%", metavar="P%", help="the smallest change that matters")
    parser.add_argument(
        "--fail-over", metavar="P%", help="exit 1 when a row is slower by more, with evidence"
    )
    parser.add_argument("--rows", metavar="REGEX", help="rows that the gate looks at: names or ops")
    parser.add_argument("--changed", action="store_true", help="only rows that changed, with evidence")
    parser.add_argument("--force", action="store_true", help="compare runs that should not be compared")
    parser.add_argument(
        "--aa",
        nargs="+",
        default=[],
        metavar="FILE",
        help="repeated identical runs: their noise is the floor",
    )
    parser.add_argument(
        "--link",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME_A", "NAME_B"),
        help="these two rows are the same work; on the screen M links the marked rows, and keeps it",
    )
    parser.add_argument("--filter", default="", metavar="REGEX", help="only names that fit")
    parser.add_argument("--group-by", choices=GROUPS)
    parser.add_argument("--phase", metavar="PHASE")
    parser.add_argument("--lens", metavar="LENS")
    parser.add_argument("--sort", metavar="COLUMN")
    parser.add_argument("--reverse", action="store_true")
    parser.add_argument("--limit", type=int, metavar="N")
    parser.add_argument("--format", choices=("table", "json", "csv", "md"))
    parser.add_argument("--width", type=int)


def run(args: Namespace) -> int:
    runs, a, b = _runs(args)
    pair, look = (runs[a], runs[b]), _look(args)
    if args.format is None and args.fail_over is None and _shared.has_screen():
        return _screen(args, look, a, b)
    from tracetui.analysis.diff import diff

    found = diff(*pair, look)
    told = _told(args, pair, look)
    if (args.format or "table") == "json":
        told = json.dumps(json.loads(told) | {"comparable": found.comparable.as_dict()})
    sys.stdout.write(told.rstrip("\n") + "\n")
    if not found.comparable.ok and not args.force:
        _shared.say("not comparable: " + "; ".join(found.comparable.reasons) + " (--force overrules)")
        return NOT_COMPARABLE
    return _gate(args, found.rows) if args.fail_over is not None else 0


def _runs(args: Namespace) -> tuple[list[Run], int, int]:
    """All runs, and which two are meant: one of each input, or two of the only one."""
    from capture.loaders import load_all

    if len(args.files) > 2:
        raise UsageError("diff takes two inputs", todo="tracetui compare FILE… puts many side by side")
    sides = [load_all([f], cache=not args.no_cache, merge=args.merge) for f in args.files]
    if len(sides) == 2:
        a, b = _shared.choose(sides[0], args.run_a), _shared.choose(sides[1], args.run_b)
        return [*sides[0], *sides[1]], a, len(sides[0]) + b
    runs = sides[0]
    if len(runs) < 2:
        raise UsageError(f"{args.files[0]} holds one run", todo="name a second file: tracetui diff A B")
    return runs, _shared.choose(runs, args.run_a or "1"), _shared.choose(runs, args.run_b or "2")


def _screen(args: Namespace, look: Look, a: int, b: int) -> int:
    """Both runs on the screen, the first as the baseline of the second."""
    from tracetui.ui.app import run as show

    merge = args.merge and any(Path(file).is_dir() for file in args.files)
    more = {"run": str(b + 1), "baseline": str(a + 1), "look": look, "merge": merge}
    return show(args.files, _shared.screen(args, cache=not args.no_cache, **more))


def _look(args: Namespace) -> Look:
    terms = Terms(
        align=args.align,
        threshold=percent(args.fail_over or args.threshold),
        noise=_noise(args),
        links=(*(Link(a, b) for a, b in args.link), *kept()),
        forced=args.force,
        changed_only=args.changed,
        ranking=args.rank,
    )
    return Look(
        filter=args.filter,
        group=args.group_by,
        phase=args.phase,
        lens=args.lens,
        limit=args.limit,
        terms=terms,
    )


def _noise(args: Namespace) -> float:
    """The spread of this machine between repeated identical runs, as a share."""
    from capture.loaders import load_all
    from tracetui.analysis.noise import noise

    return noise(load_all(args.aa, cache=not args.no_cache)) if args.aa else 0.0


def percent(text: str) -> float:
    """3% and 3 both mean a share of 0.03."""
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"{text!r} is no percentage", todo="write it like 3%") from None


def _view(args: Namespace) -> str:
    return args.view or ("cycles" if args.stats == "cycle" else "diff")


def _told(args: Namespace, pair: tuple[Run, Run], look: Look) -> str:
    from tracetui.report import report
    from tracetui.verbs.report import sorted_look
    from tracetui.views import ask, view

    asked = view(_view(args))
    if args.sort:
        look = sorted_look(replace(look, sort=args.sort), ask(asked, pair, look).rows, args.reverse)
    width = args.width or shutil.get_terminal_size((120, 40)).columns
    text = report(asked, pair, look, args.format or "table", width=width)
    if args.format == "md" and args.view is None:
        text = _verdict(pair, look) + text + "\n" + report(view("waterfall"), pair, look, "md")
    return text


def _verdict(pair: tuple[Run, Run], look: Look) -> str:
    """The head of a pull request comment: the findings as a list."""
    from tracetui.views import ask, view

    sentences = ask(view("findings"), pair, look).rows["finding"].to_list()
    return f"## {pair[0].name} → {pair[1].name}\n\n" + "".join(f"- {s}\n" for s in sentences) + "\n"


def _gate(args: Namespace, rows: Any) -> int:
    """1 when a row is slower by more than allowed, 4 when nothing could be decided."""
    import polars as pl

    from tracetui.analysis.select import regex

    if args.rows:
        fits = regex(args.rows.replace(",", "|"))
        kept = [
            bool(fits.search(f"{r['name']} {r['op'] or ''} {r['category'] or ''}")) for r in rows.to_dicts()
        ]
        rows = rows.filter(pl.Series(kept, dtype=pl.Boolean))
    slower = rows.filter(pl.col("verdict") == "slower")
    for row in slower.iter_rows(named=True):
        _shared.say(f"slower: {row['name']}")
    if slower.height:
        return 1
    if not rows.filter(pl.col("p").is_not_null()).height:
        _shared.say("not enough evidence: no row has samples on both sides")
        return NOT_COMPARABLE
    return 0
