"""`tracetui doctor [FILE]`: what this machine, or a file, can and cannot answer."""

import importlib.util
import os
import platform
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from capture import roofs
from capture.classify.names import own_rules
from capture.classify.own_rules import own_rules_file
from capture.errors import UsageError
from capture.loaders import _scan as scan
from capture.run import Run
from capture.text import clean
from tracetui.analysis import advice, roofline, why
from tracetui.look import Look
from tracetui.process import why_not_attached
from tracetui.verbs import _fleet, _machine, _shared
from tracetui.views import View, missing, view, views
from tracetui.views.summary import of_runs

if TYPE_CHECKING:
    from tracetui.fleet.ask import Fleet

_PACKAGES: Final = (
    "textual",
    "polars",
    "plotext",
    "scipy",
    "torch",
    "triton",
    "safetensors",
    "tokenizers",
    "psutil",
    "nvidia-ml-py",
)


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _shared.input_options(parser, "*")
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _fleet.on_option(parser)
    parser.add_argument(
        "--measure", action="store_true", help="measure how fast this machine is at best, and keep it"
    )
    parser.add_argument(
        "--why",
        metavar="NAME",
        help="say why kernels with NAME in their names have their op and category",
    )
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="what to measure")


def run(args: Namespace) -> int:
    """Print what can be answered, or measure the machine; return the exit code."""
    if args.measure and args.files:
        raise UsageError("--measure is of this machine, not of a file")
    if args.why is not None and not args.files:
        raise UsageError("--why asks about the kernels of a file", todo="name the file")
    lines = _measured(args.device) if args.measure else _file(args) if args.files else _here()
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _measured(device: str) -> Iterator[str]:
    _shared.say("measuring for some seconds")
    roof = _machine.measure(device)
    yield f"kept in {roofs.place()}:"
    yield from _machine.roof_entry(roof)
    if busy := _machine.busy():
        _shared.say(busy)


def _file(args: Namespace) -> Iterator[str]:
    all_views = views()
    jobs = _fleet.jobs_where_many(args, view("summary"), Look()) if args.why is None else None
    if jobs is not None:
        yield from _many(_fleet.answered(args, view("summary"), jobs), len(jobs))
        return
    for r in _shared.load(args):
        if args.why is not None:
            yield from _reasons(r, args.why)
            continue
        yield f"{r.log.source}: {r.log.format}, run {r.name!r}"
        yield f"  {r.log.read:,} records read, {r.log.kept:,} kept, {r.log.dropped:,} dropped"
        yield from (f"  {n.severity}: {n.message}" for n in r.log.notices)
        yield from answers(r, [v for v in all_views if v.runs == 1])
        yield from _roof(r)


def _many(fleet: "Fleet", files: int) -> Iterator[str]:
    """Yield what many files can and cannot answer, and which could not be read."""
    members, log = fleet.whole.members, fleet.run.log
    lacking = fleet.whole.frames["lacking"].select("view", "needs", "runs").rows()
    yield f"{log.source}: {files:,} files with {members.height:,} runs, {log.format}"
    yield f"  {log.read:,} records read, {log.kept:,} kept, {log.dropped:,} dropped"
    yield from (f"  could not be read: {fault}" for fault in fleet.faults)
    everywhere = [v.name for v in views() if v.runs == 1 and v.name not in {name for name, _, _ in lacking}]
    yield "  can answer: " + ", ".join(everywhere)
    for name, needs, count in lacking:
        yield f"  cannot answer {name}: it needs {needs}{of_runs(count, members.height)}"


def _reasons(run: Run, part: str) -> Iterator[str]:
    """Yield why the kernels with this part in their names have their op and category."""
    reasons = why.reasons(run, part)
    yield f"{run.log.source}: run {run.name!r}, {len(reasons)} kinds of kernels with {clean(part, 80)!r}"
    for one in reasons:
        yield f"  {one.name}"
        if one.short != one.name:
            yield f"    short: {one.short}"
        yield f"    op {one.op or 'unknown'}, category {one.category or 'unknown'}"
        yield f"    {one.because}"


def _own_rules() -> Iterator[str]:
    """Yield a person's own rules for kernel names, and what is wrong with them."""
    rules, file = own_rules(), own_rules_file()
    where = clean(str(file), 4096) if file else "nowhere: there is no home folder"
    if not rules.text and not rules.problems:
        yield f"own rules for kernel names: none in {where}"
        return
    yield f"own rules for kernel names: {len(rules)} in {where}"
    for rule in rules:
        yield f"  line {rule.line}: {clean(rule.pattern.pattern, 200)} → {rule.op or '-'}, {rule.category}"
    yield from (f"  wrong: {problem}" for problem in rules.problems)


def answers(run: Run, asked: list[View]) -> Iterator[str]:
    lacking = {v.name: missing(v, [run]) for v in asked}
    yield "  can answer: " + ", ".join(name for name, needs in lacking.items() if not needs)
    for name, needs in lacking.items():
        if needs:
            yield f"  cannot answer {name}: it needs {' and '.join(needs)}"
    yield from (f"  next time, for {way}" for way in advice.next_time(run, chain(*lacking.values())))


def _roof(run: Run) -> Iterator[str]:
    """Yield what the work of a run is held against, where it tells its work."""
    if run.has("bytes") or run.has("flops"):
        roof = roofline.roof_of(run)
        words = roofline.describe(roof, roofline.dtype_of(run)) if roof else "none known of its device"
        yield f"  roof: {words}"


def _here() -> Iterator[str]:
    system = f"{platform.system()} {platform.machine()}"
    yield f"python {platform.python_version()} on {system}, {os.cpu_count()} cores"
    for name in _PACKAGES:
        yield f"  {name:14} {_machine.installed(name) or 'not installed'}"
    screen = "yes" if _shared.has_screen() else "no"
    yield f"terminal: TERM={os.environ.get('TERM', '(unset)')}, screen {screen}"
    has_torch = importlib.util.find_spec("torch") is not None
    yield f"live: {'yes' if has_torch else 'no, torch is not installed (pip install tracetui[live])'}"
    yield from _machine.driver_lines()
    yield "decode kernels on a GPU: unproved (tracetui help gpu)"
    yield f"compiled scanner of Chrome traces: {scan.state()}"
    way = "through Python (unproved)" if hasattr(sys, "remote_exec") else "through gdb"
    yield f"live --pid: {why_not_attached() or f'yes, {way}'}"
    yield from _own_rules()
    yield from _machine.roof_lines()
    yield from _machine.weight_lines()
