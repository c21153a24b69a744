"""`tracetui diff A [B]`: what changed between two runs, and a gate for CI."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capture.errors import UsageError
from capture.run import Run
from tracetui import units
from tracetui.kept_links import kept
from tracetui.look import GROUPS, RANKINGS, Floor, Link, Look, Terms
from tracetui.samples import resolved
from tracetui.verbs import _diff_many, _fleet, _interleaved, _shared
from tracetui.verbs._sides import Sides, sides_of

if TYPE_CHECKING:
    from tracetui.analysis.compare.diff import Diff

NOT_COMPARABLE = 4


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _shared.input_options(parser, "*")
    _side_options(parser)
    _recording_options(parser)
    _fleet.on_option(parser)
    _shared.screen_options(parser, None)
    _gate_options(parser)
    _answer_options(parser)


def _side_options(parser: ArgumentParser) -> None:
    """Declare which runs are compared."""
    add = parser.add_argument
    for side in "ab":
        repeats = f"repeats of side {side}: the run is the sample"
        add(f"--{side}", nargs="+", type=resolved, default=[], metavar="FILE", help=repeats)
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _shared.device_option(parser)
    for side, place in (("a", "first"), ("b", "second")):
        which = f"which run of the {place} input (or of the only one)"
        add(f"--run-{side}", metavar="N|NAME", help=which)


def _recording_options(parser: ArgumentParser) -> None:
    """Declare that the two sides are recorded first."""
    add = parser.add_argument
    about = "record two programs in turn, until the comparison is decided or the budget is spent"
    add("--record", nargs=2, metavar=("CMD_A", "CMD_B"), help=about)
    spent = "how long --record may take: 90s, 5m, 1h (5m)"
    add("--budget", type=_interleaved.budget, default=300.0, metavar="TIME", help=spent)


def _gate_options(parser: ArgumentParser) -> None:
    """Declare on what terms runs are compared, and when the exit code says that something got worse."""
    add = parser.add_argument
    stats = "what is compared: kernels, or the statistics of cycles that a report holds"
    add("--stats", choices=("kernel", "cycle"), default="kernel", help=stats)
    add("--rank", choices=RANKINGS, default="suspicion", help="order of cycle statistics")
    align = "which steps are paired: those of equal context, or of equal number"
    add("--align", choices=("context", "step"), default="context", help=align)
    add("--threshold", default="1%", metavar="PERCENT", help="the smallest change that matters")
    add("--fail-over", metavar="PERCENT", help="exit 1 when a row is slower by more, with evidence")
    add("--rows", metavar="REGEX", help="rows that the gate looks at: names or ops")
    floor = "runs of the same differ by this much (one standard deviation); else 5%% is assumed"
    add("--floor", metavar="PERCENT", help=floor)
    trust = "let one run a side fail the gate, though nobody knows what runs of the same differ by"
    add("--trust-one-run", action="store_true", help=trust)
    add("--changed", action="store_true", help="only rows that changed, with evidence")
    add("--force", action="store_true", help="compare runs that should not be compared")
    noise = "identical runs: what they differ by is noise, and no change below it is believed"
    add("--aa", nargs="+", type=resolved, default=[], metavar="FILE", help=noise)
    link = "these two rows are the same work; on the screen M links the marked rows, and keeps it"
    add("--link", nargs=2, action="append", default=[], metavar=("NAME_A", "NAME_B"), help=link)


def _answer_options(parser: ArgumentParser) -> None:
    """Declare which rows are shown, and how."""
    add = parser.add_argument
    add("--filter", default="", metavar="REGEX", help="only names that fit")
    add("--group-by", choices=GROUPS, help=_shared.GROUP)
    add("--phase", metavar="PHASE", help=_shared.PHASE)
    add("--lens", metavar="LENS", help=_shared.LENS)
    _shared.steps_option(parser)
    add("--sort", metavar="COLUMN", help=_shared.SORT)
    add("--reverse", action="store_true", help="sort the other way round")
    add("--limit", type=int, metavar="N", help=_shared.LIMIT)
    add("--format", choices=_shared.FORMATS, help="print, and how; else a screen shows it")
    add("--width", type=int, help=_shared.WIDTH)


def run(args: Namespace) -> int:
    """Show or print the comparison; return 0, 1 for a regression, or 4 where nothing could be decided."""
    if args.on:
        return _diff_many.print_sides(args, percent(args.fail_over or args.threshold))
    share = _record(args) if args.record else 1.0
    sides = sides_of(args)
    a, b = sides.pair
    pair, look = (sides.runs[a], sides.runs[b]), _look(args, sides, share)
    if args.format is None and args.fail_over is None and _shared.has_screen():
        return _screen(args, look, a, b)
    from tracetui.analysis.compare.diff import diff

    compared = diff(*pair, look)
    text = _report(args, pair, look)
    if (args.format or "table") == "json":
        from tracetui.analysis.compare.decision import decision

        more = {"comparable": compared.comparable.as_dict(), "decision": decision(compared).as_dict()}
        text = json.dumps(json.loads(text) | more)
    sys.stdout.write(text.rstrip("\n") + "\n")
    if not compared.comparable.ok and not args.force:
        _shared.say("not comparable: " + "; ".join(compared.comparable.reasons) + " (--force overrules)")
        return NOT_COMPARABLE
    return _gate(args, look, compared) if args.fail_over is not None else 0


def _record(args: Namespace) -> float:
    """Record both sides, which become those of the command line; return the last look's share of errors."""
    from tracetui.analysis.compare.diff import diff
    from tracetui.analysis.compare.sequential import decided

    if args.files or args.a or args.b:
        raise UsageError("--record makes both sides itself", todo="name no file beside it")

    def ask(a: Sequence[Path], b: Sequence[Path], share: float) -> "tuple[Diff, bool]":
        args.a, args.b = list(map(str, a)), list(map(str, b))
        sides = sides_of(args)
        first, second = (sides.runs[i] for i in sides.pair)
        look = _look(args, sides, share)
        compared = diff(first, second, look)
        may_fail = args.fail_over is not None and (look.terms.trusted or args.trust_one_run)
        fails = may_fail and _slower(_gated(args, compared.rows)).height > 0
        return compared, fails or decided(compared)

    made = _interleaved.record_until_decided(args.record, args.budget, ask)
    args.a, args.b = (list(map(str, side)) for side in made.files)
    return made.share


def _screen(args: Namespace, look: Look, a: int, b: int) -> int:
    """Show both runs on the screen, the first as the baseline of the second."""
    from tracetui.ui.app import run as show

    files = [*args.files[:1], *args.a, *args.files[1:], *args.b]
    merge = args.merge and any(Path(file).is_dir() for file in files)
    more = {**_shared.ways(args), "run": str(b + 1), "baseline": str(a + 1), "look": look, "merge": merge}
    screen = _shared.screen(args, **more)
    return show(files, replace(screen, view=_view(args)))


def _floor(args: Namespace, sides: Sides) -> Floor:
    """Return how far runs of the same lie apart: as said, as kept with a baseline, else as assumed."""
    if args.floor:
        return Floor(percent(args.floor), how="as said with --floor")
    from tracetui.analysis.compare.floor import kept as kept_with

    known = (kept_with(sides.runs[i]) for i in sides.pair)
    return next((floor for floor in known if floor is not None), Floor())


def _look(args: Namespace, sides: Sides, share: float = 1.0) -> Look:
    terms = Terms(
        floor=_floor(args, sides),
        align=args.align,
        threshold=percent(args.fail_over or args.threshold),
        more_a=sides.more_a,
        more_b=sides.more_b,
        same=sides.identical.noise,
        share=share,
        notes=(*sides.notes, *_share_note(share)),
        links=(*(Link(a, b) for a, b in args.link), *kept()),
        forced=args.force,
        changed_only=args.changed,
        ranking=args.rank,
    )
    look = Look(
        filter=args.filter,
        group=args.group_by,
        phase=args.phase,
        lens=args.lens,
        limit=args.limit,
        terms=terms,
    )
    return _shared.at_steps(look, args.steps)


def _share_note(share: float) -> tuple[str, ...]:
    """Return what a look at recordings that grew was allowed, in words; nothing for the only look."""
    from tracetui.analysis.statistics import ALPHA

    if share == 1.0:
        return ()
    return (f"asked after each pair: this look used {100 * ALPHA * share:.1f}% of the 5% for errors",)


def percent(text: str) -> float:
    """Return a percentage as a share: 3% and 3 both mean 0.03; raise UsageError where it is none."""
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"{text!r} is no percentage", todo="write it like 3%") from None


def _view(args: Namespace) -> str:
    return args.view or ("cycles" if args.stats == "cycle" else "diff")


def _report(args: Namespace, pair: tuple[Run, Run], look: Look) -> str:
    from tracetui.report import report
    from tracetui.verbs.report import sorted_look
    from tracetui.views import ask, view

    asked = view(_view(args))
    if args.sort:
        look = sorted_look(replace(look, sort=args.sort), ask(asked, pair, look).rows, args.reverse)
    width, cut = _shared.room(args)
    return report(asked, pair, look, args.format or "table", width=width, cut=cut)


def _gate(args: Namespace, look: Look, compared: "Diff") -> int:
    """Return 1 when a row is slower by more than allowed, 4 when that could not be decided, else 0."""
    import polars as pl

    rows = _gated(args, compared.rows)
    slower = _slower(rows)
    for row in slower.iter_rows(named=True):
        _shared.say(f"slower: {_sized(row)}")
    if slower.height and not (look.terms.trusted or args.trust_one_run):
        _shared.say(
            f"one run a side fails no gate: that runs of the same differ by {look.terms.floor.percent} is "
            "assumed. 3 recordings a side (--a F… --b F…), identical runs behind --aa, a baseline kept with "
            "its repeats, --floor PERCENT or --trust-one-run would decide"
        )
        return NOT_COMPARABLE
    if slower.height:
        return 1
    _tell_what_it_takes(compared, look)
    if not rows.filter(pl.col("p").is_not_null()).height:
        _shared.say("not enough evidence: no row has samples on both sides")
        return NOT_COMPARABLE
    return 0


def _tell_what_it_takes(compared: "Diff", look: Look) -> None:
    """Say what would decide the phase that takes longest, where it is undecided and could be."""
    from tracetui.analysis.compare.sequential import main_phase
    from tracetui.analysis.compare.what_it_takes import more_recordings, words

    row = main_phase(compared)
    if row is not None and row["verdict"] == "~" and row["p"] is not None:
        name = " ".join(filter(None, (row["phase"], row["what"])))
        takes = words(more_recordings(row, look.terms), compared.seconds)
        _shared.say(f"{name} is undecided: {takes}")


def _gated(args: Namespace, rows: Any) -> Any:
    """Return the rows that the gate looks at."""
    import polars as pl

    from tracetui.analysis.matching import fitting

    if not args.rows:
        return rows
    labels = pl.col("name", "op", "category").cast(pl.String)
    words = pl.concat_str(labels, separator=" ", ignore_nulls=True)
    return rows.filter(fitting(rows.select(words).to_series(), args.rows.replace(",", "|")))


def _slower(rows: Any) -> Any:
    """Return the rows that are slower, the weightiest first."""
    import polars as pl

    from tracetui.analysis.compare.diff import weight

    return rows.filter(pl.col("verdict") == "slower").sort(weight().abs(), descending=True)


def _sized(row: dict[str, Any]) -> str:
    """Write a row with what its verdict rests on."""
    before, after = (units.duration(row[c]) for c in ("median_a_ns", "median_b_ns"))
    change = f" {row['median_delta_ns'] / row['median_a_ns']:+.1%}" if row["median_a_ns"] else ""
    where = f" in {row['phase']}" if row["phase"] else ""
    return f"{row['name']}{change}{where} ({before} → {after} a {row['per']}, p {row['p_adjusted']:.2g})"
