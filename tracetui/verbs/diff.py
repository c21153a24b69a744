"""`tracetui diff A [B]`: what changed between two runs, and a gate for CI."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from capture.errors import UsageError
from tracetui import units
from tracetui.analysis.frames.name_filter import match_names
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.look import CYCLE_RANKINGS, Look, RowLink, Terms
from tracetui.samples import resolve_file
from tracetui.saved_choices import load_links
from tracetui.verbs import _comparison_sides, _many_files, _options
from tracetui.verbs._comparison_sides import PlacedSides, read_sides

if TYPE_CHECKING:
    from tracetui.compare.diff import Diff
    from tracetui.fleet.file_job import FileJob
    from tracetui.views import View

NOT_COMPARABLE = 4
MAX_UNDECIDED_LISTED = 5  # of a gate, in one message


def options(parser: ArgumentParser) -> None:
    _options.add_input_options(parser, "*")
    _add_side_options(parser)
    _add_recording_options(parser)
    _options.add_options(parser, "--on")
    _options.add_screen_options(parser, None)
    _add_gate_options(parser)
    _add_answer_options(parser)


def _add_side_options(parser: ArgumentParser) -> None:
    add = _options.find_group(parser, "sides").add_argument
    for side in "ab":
        repeats = f"repeated recordings of side {side}; each run is one sample"
        add(f"--{side}", nargs="+", type=resolve_file, default=[], metavar="FILE", help=repeats)
    _options.add_options(parser, "--merge", "--device", *_options.WORK_OPTIONS)
    for side, position in (("a", "first"), ("b", "second")):
        which = f"run of the {position} input (or of the only one)"
        add(f"--run-{side}", metavar="N|NAME", help=which)


def _add_recording_options(parser: ArgumentParser) -> None:
    add = _options.find_group(parser, "recording both sides").add_argument
    about = "record two programs alternately until the comparison is decided or the budget is spent"
    add("--record", nargs=2, metavar=("CMD_A", "CMD_B"), help=about)
    spent = "time limit of --record: 90s, 5m, 1h (default: 5m)"
    add("--budget", type=_comparison_sides.parse_budget, default=300.0, metavar="TIME", help=spent)


def _add_gate_options(parser: ArgumentParser) -> None:
    """Add the terms of the comparison, and when the exit code reports a regression."""
    add = _options.find_group(parser, "verdict").add_argument
    stats = "compare kernels, or the cycle statistics of a report"
    add("--stats", choices=("kernel", "cycle"), default="kernel", help=stats)
    add("--rank", choices=CYCLE_RANKINGS, default="suspicion", help="order of cycle statistics")
    align = "pair steps of equal context, or of equal number"
    add("--align", choices=("context", "step"), default="context", help=align)
    add("--threshold", default="1%", metavar="PERCENT", help="smallest relevant change")
    fails = "exit with 1 if a row is slower by more than this, with evidence"
    add("--fail-over", metavar="PERCENT", help=fails)
    unsure = "fail: with --fail-over, exit with 1 also if a phase or row stays undecided (default: pass)"
    add("--undecided", choices=("pass", "fail"), help=unsure)
    add("--rows", metavar="REGEX", help="names or ops that the gate checks")
    floor = "run-to-run spread, one standard deviation (default: assume 5%%)"
    add("--floor", metavar="PERCENT", help=floor)
    trust = "let the gate fail on one run per side although the run-to-run spread is unknown"
    add("--trust-one-run", action="store_true", help=trust)
    add("--changed", action="store_true", help="only rows that changed, with evidence")
    add("--force", action="store_true", help="compare runs that should not be compared")
    noise = "identical runs that measure the noise; smaller changes stay undecided"
    add("--aa", nargs="+", type=resolve_file, default=[], metavar="FILE", help=noise)
    link = "treat these two rows as the same work; on the screen M links and saves the marked rows"
    add("--link", nargs=2, action="append", default=[], metavar=("NAME_A", "NAME_B"), help=link)


def _add_answer_options(parser: ArgumentParser) -> None:
    add = _options.find_group(parser, "what is shown").add_argument
    add("--filter", default="", metavar="REGEX", help="only matching names")
    _options.add_options(
        parser, "--group-by", "--phase", "--lens", "--steps", "--sort", "--reverse", "--limit", "--cost"
    )
    _options.add_format_option(parser, default=None)
    _options.add_options(parser, "--width")


def run(args: Namespace) -> int:
    """Show or print the comparison; return 0, 1 if the gate fails, or 4 without evidence."""
    _require_gate(args)
    if args.on:
        return print_file_groups(args, _options.parse_percent(args.fail_over or args.threshold))
    share = _record_sides(args) if args.record else 1.0
    placed, look = _read_judged_sides(args, share), _build_look(args, share)
    if args.format is None and args.fail_over is None and _options.has_screen():
        return _show_screen(args, look, placed)
    from tracetui.compare.diff import compare_runs

    compared = compare_runs(placed.sides, look)
    text = _format_report(args, placed.sides, look)
    if (args.format or "table") == "json":
        from tracetui.compare.words.decision import compute_decision

        comparable, decision = compared.comparability.as_dict(), compute_decision(compared).as_dict()
        text = json.dumps({**json.loads(text), "comparable": comparable, "decision": decision})
    sys.stdout.write(text.rstrip("\n") + "\n")
    if not compared.comparability.ok and not args.force:
        reasons = "; ".join(compared.comparability.reasons)
        _options.print_status(f"not comparable: {reasons} (--force overrides)")
        return NOT_COMPARABLE
    return _judge_gate(args, look, compared) if args.fail_over is not None else 0


def _require_gate(args: Namespace) -> None:
    """Raise UsageError for a term of a gate without the gate."""
    if args.undecided and args.fail_over is None:
        raise UsageError("--undecided is a term of a gate", todo="add --fail-over PERCENT")


def _record_sides(args: Namespace) -> float:
    """Record both sides, which become those of the command line; return the last look's share of alpha."""
    from tracetui.compare.diff import compare_runs
    from tracetui.compare.words.decision import is_decided

    if args.files or args.a or args.b:
        raise UsageError("--record creates both sides itself", todo="name no file")

    def ask(a: Sequence[Path], b: Sequence[Path], share: float) -> "tuple[Diff, bool]":
        args.a, args.b = list(map(str, a)), list(map(str, b))
        compared = compare_runs(_read_judged_sides(args, share).sides, _build_look(args, share))
        may_fail = args.fail_over is not None and _has_trusted_spread(args, compared)
        fails = may_fail and _select_slower_rows(_select_gated_rows(args, compared.rows)).height > 0
        is_open = args.undecided == "fail" and bool(_list_undecided(args, compared))
        return compared, fails or (is_decided(compared) and not is_open)

    made = _comparison_sides.record_until_decided(args.record, args.budget, ask)
    args.a, args.b = (list(map(str, side)) for side in made.files)
    return made.alpha_share


def _show_screen(args: Namespace, look: Look, placed: PlacedSides) -> int:
    """Show both runs on the screen, the first as the baseline of the second."""
    from tracetui.ui.app import run as show

    files = [*args.files[:1], *args.a, *args.files[1:], *args.b]
    merge = args.merge and any(Path(file).is_dir() for file in files)
    run, baseline = str(placed.b + 1), str(placed.a + 1)
    more = {"run": run, "baseline": baseline, "sides": placed.sides, "look": look, "merge": merge}
    screen = _options.build_screen_options(args, **_options.build_read_options(args) | more)
    return show(files, replace(screen, view=_choose_view(args)))


def _read_judged_sides(args: Namespace, share: float) -> PlacedSides:
    """Read the sides, with what is known about their noise."""
    placed = read_sides(args)
    notes = (*placed.sides.notes, *_describe_alpha_share(share))
    floor = _find_noise_floor(args, placed.sides)
    return placed._replace(sides=replace(placed.sides, floor=floor, notes=notes))


def _find_noise_floor(args: Namespace, sides: Sides) -> NoiseFloor:
    """Return the run-to-run spread: from --floor, from a baseline, else the default."""
    if args.floor:
        return NoiseFloor(_options.parse_percent(args.floor), source="set with --floor")
    return next((floor for floor in map(NoiseFloor.from_saved, sides) if floor is not None), NoiseFloor())


def _build_look(args: Namespace, share: float) -> Look:
    terms = Terms(
        align=args.align,
        threshold=_options.parse_percent(args.fail_over or args.threshold),
        share=share,
        links=(*(RowLink(a, b) for a, b in args.link), *load_links()),
        forced=args.force,
        changed_only=args.changed,
        ranking=args.rank,
    )
    return _build_plain_look(args, terms)


def _build_plain_look(args: Namespace, terms: Terms) -> Look:
    look = Look(filter=args.filter, group=args.group_by, phase=args.phase, lens=args.lens, limit=args.limit)
    look = replace(look, price=args.cost)
    return _options.with_steps(replace(look, terms=terms), args.steps)


def _describe_alpha_share(share: float) -> tuple[str, ...]:
    """Return a note on the share of alpha of a repeated look; nothing for a single look."""
    from tracetui.analysis.frames.statistics import ALPHA

    if share == 1.0:
        return ()
    return (f"compared after each pair: this look used {100 * ALPHA * share:.1f}% of the 5% error budget",)


def _choose_view(args: Namespace) -> str:
    return args.view or ("cycles" if args.stats == "cycle" else "diff")


def _format_report(args: Namespace, sides: Sides, look: Look) -> str:
    from tracetui.report_formats import ask_for_report
    from tracetui.views import load_view

    return _options.format_sorted(args, ask_for_report(load_view(_choose_view(args)), sides, look))


def _has_trusted_spread(args: Namespace, compared: "Diff") -> bool:
    return compared.sides.has_known_spread or args.trust_one_run


def _judge_gate(args: Namespace, look: Look, compared: "Diff") -> int:
    """Return 1 if a row is slower than allowed, or undecided where that fails, 4 without evidence, else 0."""
    rows = _select_gated_rows(args, compared.rows)
    slower = _select_slower_rows(rows)
    for row in slower.iter_rows(named=True):
        _options.print_status(f"slower: {_format_slower_row(row)}")
    if slower.height and not _has_trusted_spread(args, compared):
        _options.print_status(
            "one run per side does not fail the gate: the run-to-run spread of "
            f"{compared.sides.floor.percent} is only assumed. Use 3 recordings per side (--a F… --b F…), "
            "identical runs (--aa F…), a baseline of several recordings, --floor PERCENT or --trust-one-run"
        )
        return NOT_COMPARABLE
    if slower.height:
        return 1
    _print_required_recordings(compared, look)
    if not rows.filter(pl.col("p").is_not_null()).height:
        _options.print_status("not enough evidence: no row has samples on both sides")
        return NOT_COMPARABLE
    return _fail_undecided(_list_undecided(args, compared)) if args.undecided == "fail" else 0


def _fail_undecided(undecided: Sequence[str]) -> int:
    """Print what is undecided in a gate that this fails; return the exit code: 1, or 0 if nothing is."""
    if not undecided:
        return 0
    more = (
        f" and {len(undecided) - MAX_UNDECIDED_LISTED} more" if len(undecided) > MAX_UNDECIDED_LISTED else ""
    )
    names = ", ".join(undecided[:MAX_UNDECIDED_LISTED])
    _options.print_status(f"undecided, which fails this gate (--undecided fail): {names}{more}")
    return 1


def _list_undecided(args: Namespace, compared: "Diff") -> list[str]:
    """List what the gate cannot decide: rows of --rows, else phases and rows that weigh enough."""
    from tracetui.compare import params
    from tracetui.compare.words.decision import compute_decision

    rows, names = _select_gated_rows(args, compared.rows), list[str]()
    if not args.rows:
        time = pl.col("total_a_ns") + pl.col("total_b_ns")
        rows = rows.filter(time >= params.NEGLIGIBLE * time.sum())
        phases = compute_decision(compared).phases.unique("phase", keep="first", maintain_order=True)
        named = pl.concat_str("phase", "what", separator=" ", ignore_nulls=True)
        names = phases.filter(pl.col("verdict") == "~").select(named).to_series().to_list()
    named = pl.concat_str("name", "phase", separator=" in ", ignore_nulls=True)
    return [*names, *rows.filter(pl.col("verdict") == "~").select(named).to_series()]


def _print_required_recordings(compared: "Diff", look: Look) -> None:
    """Print how many recordings would decide the longest phase, if it is undecided."""
    from tracetui.compare.evidence.sample_size import estimate_recordings_needed, format_requirement
    from tracetui.compare.words.decision import select_main_phase

    row = select_main_phase(compared)
    if row is not None and row["verdict"] == "~" and row["p"] is not None:
        name = " ".join(filter(None, (row["phase"], row["what"])))
        more = estimate_recordings_needed(row, compared.sides, look.terms)
        takes = format_requirement(more, compared.recording_seconds)
        _options.print_status(f"{name} is undecided: {takes}")


def _select_gated_rows(args: Namespace, rows: pl.DataFrame) -> pl.DataFrame:
    if not args.rows:
        return rows
    labels = pl.col("name", "op", "category").cast(pl.String)
    words = pl.concat_str(labels, separator=" ", ignore_nulls=True)
    return rows.filter(match_names(rows.select(words).to_series(), args.rows.replace(",", "|")))


def _select_slower_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the slower rows, those of largest weight first."""
    from tracetui.compare.diff import change_ns

    return rows.filter(pl.col("verdict") == "slower").sort(change_ns().abs(), descending=True)


def _format_slower_row(row: dict[str, Any]) -> str:
    """Format a row with the evidence of its verdict."""
    before, after = (units.format_duration(row[c]) for c in ("median_a_ns", "median_b_ns"))
    change = f" {row['median_delta_ns'] / row['median_a_ns']:+.1%}" if row["median_a_ns"] else ""
    where = f" in {row['phase']}" if row["phase"] else ""
    name = row["instead"] or row["name"]
    return f"{name}{change}{where} ({before} → {after} per {row['per']}, p {row['p_adjusted']:.2g})"


def print_file_groups(args: Namespace, threshold: float) -> int:
    """Print the comparison of two groups of files; return 0, with --fail-over 1 or 4."""
    from tracetui.report_formats import ReportContent
    from tracetui.views import load_view

    look = replace(_build_plain_look(args, Terms(threshold=threshold)), sort=args.sort)
    view = load_view("sides")
    fleet = _many_files.ask_many_files(args, view, _build_side_jobs(args, view, look))
    content = ReportContent(view, [fleet.run], [fleet.run], fleet.answer, look)
    sys.stdout.write(_options.format_sorted(args, content))
    return _judge_file_groups(args, fleet.answer.rows) if args.fail_over is not None else 0


def _build_side_jobs(args: Namespace, view: "View", look: Look) -> "list[FileJob]":
    """Return a job per file of both sides; raise UsageError if a side is empty."""
    from tracetui.fleet.ask_files import make_jobs

    first, second = [*args.files[:1], *args.a], [*args.files[1:], *args.b]
    if not first or not second:
        raise UsageError("--on compares two sides", todo="name two folders, patterns or lists")
    options = {"cache": not args.no_cache, "capture": args.capture}
    a, b = (make_jobs(view, side, look, **options) for side in (first, second))
    return [*a, *(replace(job, number=len(a) + job.number, side=1) for job in b)]


def _judge_file_groups(args: Namespace, rows: pl.DataFrame) -> int:
    """Return 1 if a row is slower than allowed or its doubt fails, 4 if none could be judged, else 0."""
    if args.rows and rows.width:
        rows = rows.filter(match_names(rows.to_series(), args.rows.replace(",", "|")))
    if rows.is_empty() or rows["p"].null_count() == rows.height:
        _options.print_status("not enough evidence: no row has two files on both sides")
        return NOT_COMPARABLE
    if (rows["verdict"] == "slower").any():
        return 1
    undecided = rows.filter(pl.col("verdict") == "~").to_series().cast(pl.String).to_list()
    return _fail_undecided(undecided) if args.undecided == "fail" else 0
