"""`tracetui doctor [FILE]`: what this machine, or a file, can and cannot answer."""

import importlib.util
import os
import platform
import re
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from capture import device_roofs, nvidia
from capture.classify.kernel_rules import find_user_rules_file
from capture.classify.name_rules import load_user_rules
from capture.clean_text import clean
from capture.device_roofs import Roof
from capture.errors import CaptureError, EngineError, UsageError
from capture.infer_structure import NO_LAYERS
from capture.loaders import _scan as scan
from capture.loaders import check_foreign_loaders
from capture.run import Run
from tracetui import units
from tracetui.analysis import classification_reasons, recording_advice, roofline
from tracetui.analysis.time.fitness import describe_fitness, judge_fitness
from tracetui.look import Look
from tracetui.process import BundledEngine, explain_attach_limits
from tracetui.verbs import _many_files, _options
from tracetui.verbs.version import find_version
from tracetui.views import View, find_missing_needs, list_unusable_views, load_view, load_views
from tracetui.views.summary import format_run_count

if TYPE_CHECKING:
    from tracetui.fleet.ask_files import FleetAnswer

BUSY_LOAD_SHARE: Final = 0.75  # of the cores, over the last minute
ENGINE_POLL_S: Final = 0.02  # between two checks whether the engine has ended
MEASURE_COMMAND: Final = "tracetui doctor --measure"
UNFIT: Final = 4  # exit code of a capture that is not fit to compare
_LISTED_PACKAGES: Final = (
    "textual", "polars", "plotext", "scipy", "torch", "triton", "safetensors", "tokenizers", "psutil",
    "nvidia-ml-py",
)  # fmt: skip


def options(parser: ArgumentParser) -> None:
    _options.add_input_options(parser, "*", "--merge", *_options.WORK_OPTIONS, "--on")
    parser.add_argument("--measure", action="store_true", help="measure the roof of this machine and save it")
    about = "explain the op and category of kernels with NAME in their names"
    parser.add_argument("--why", metavar="NAME", help=about)
    about = "say how fit a capture is to be compared; exit code 4 if it is not"
    parser.add_argument("--fit", action="store_true", help=about)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="device to measure")


def run(args: Namespace) -> int:
    """Print what can be answered, or measure the machine; return the exit code."""
    if args.measure and args.files:
        raise UsageError("--measure takes no file")
    for option, value in (("--why", args.why), ("--fit", args.fit or None)):
        if value is not None and not args.files:
            raise UsageError(f"{option} needs a file", todo="name the file")
    if args.fit:
        return _report_fitness(args)
    if args.measure:
        lines = _iter_measurement(args.device)
    elif args.roof and not args.files:
        lines = iter_roof_choice(args.roof)
    else:
        lines = _iter_file_lines(args) if args.files else _iter_machine_lines()
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _report_fitness(args: Namespace) -> int:
    """Print how fit each run is to be compared; return 4 if one is not, or if nothing can be said of it."""
    runs = _options.load_runs(args)
    verdicts = [judge_fitness(run) for run in runs]
    for run, fitness in zip(runs, verdicts, strict=True):
        text = describe_fitness(fitness) if fitness else "unknown: this source marks no steps"
        sys.stdout.write(f"{run.name}: {text}\n")
    return 0 if all(fitness and not fitness.flaws for fitness in verdicts) else UNFIT


def _iter_measurement(device: str) -> Iterator[str]:
    _options.print_status("measuring for a few seconds")
    roof = measure_roof(device)
    yield f"saved in {device_roofs.find_measured_roofs_file()}:"
    yield from iter_roof_entry(roof)
    if busy := describe_load():
        _options.print_status(busy)


def _iter_file_lines(args: Namespace) -> Iterator[str]:
    summary, views = load_view("summary"), [v for v in load_views() if v.run_count == 1]
    jobs = _many_files.build_jobs_if_many(args, summary, Look()) if args.why is None else None
    if jobs is not None:
        yield from _iter_many_files_lines(_many_files.ask_many_files(args, summary, jobs), len(jobs), views)
        return
    for r in _options.load_runs(args):
        if args.why is not None:
            yield from _iter_reason_lines(r, args.why)
            continue
        yield f"{r.log.source}: {r.log.format}, run {r.name!r}"
        yield f"  {r.log.read:,} records read, {r.log.retained:,} kept, {r.log.dropped:,} dropped"
        yield from (f"  {n.severity}: {n.message}" for n in r.log.notices)
        yield from iter_answer_lines(r, views)
        yield from _iter_run_roof_lines(r)


def _iter_many_files_lines(fleet: "FleetAnswer", files: int, views: list[View]) -> Iterator[str]:
    """Yield what many files can and cannot answer, and which could not be read."""
    members, log = fleet.merged.members, fleet.run.log
    lacking = fleet.merged.frames["lacking"].select("view", "needs", "runs").rows()
    yield f"{log.source}: {files:,} files with {members.height:,} runs, {log.format}"
    yield f"  {log.read:,} records read, {log.retained:,} kept, {log.dropped:,} dropped"
    yield from (f"  could not be read: {fault}" for fault in fleet.faults)
    somewhere = {name for name, _, _ in lacking}
    yield "  can answer: " + ", ".join(v.name for v in views if v.name not in somewhere)
    for name, needs, count in lacking:
        yield f"  cannot answer {name}: it needs {needs}{format_run_count(count, members.height)}"


def _iter_reason_lines(run: Run, part: str) -> Iterator[str]:
    """Yield why the kernels with `part` in their names have their op and category."""
    reasons = classification_reasons.explain_kernels(run, part)
    yield f"{run.log.source}: run {run.name!r}, {len(reasons)} kinds of kernels with {clean(part, 80)!r}"
    if reason := run.meta.get(NO_LAYERS):
        yield f"  layers are unknown: {clean(str(reason), 200)}"
    for reason in reasons:
        yield f"  {reason.name}"
        if reason.short != reason.name:
            yield f"    short: {reason.short}"
        yield f"    op {reason.op or 'unknown'}, category {reason.category or 'unknown'}"
        yield f"    {reason.explanation}"


def _iter_user_rule_lines() -> Iterator[str]:
    """Yield the user's rules for kernel names, and errors in them."""
    rules, file = load_user_rules(), find_user_rules_file()
    where = clean(str(file), 4096) if file else "nowhere: there is no home folder"
    if not rules.text and not rules.problems:
        yield f"user rules for kernel names: none in {where}"
        return
    yield f"user rules for kernel names: {len(rules)} in {where}"
    for rule in rules:
        yield f"  line {rule.line}: {clean(rule.pattern.pattern, 200)} → {rule.op or '-'}, {rule.category}"
    yield from (f"  wrong: {problem}" for problem in rules.problems)


def _iter_plugin_lines() -> Iterator[str]:
    """Yield the loaders and views of other packages, and the reason for those that are left out."""
    yield from (loader.describe() for loader in check_foreign_loaders())
    yield from (f"view {view.name!r} of {view.package}" for view in load_views() if view.package)
    yield from list_unusable_views()


def iter_answer_lines(run: Run, views: list[View]) -> Iterator[str]:
    """Yield which views a run can feed, what the others need, and how to record it."""
    lacking = {v.name: find_missing_needs(v, [run]) for v in views}
    yield "  can answer: " + ", ".join(name for name, needs in lacking.items() if not needs)
    for name, needs in lacking.items():
        if needs:
            yield f"  cannot answer {name}: it needs {' and '.join(needs)}"
    ways = recording_advice.suggest_recording(run, chain(*lacking.values()))
    yield from (f"  next time, for {way}" for way in ways)


def _iter_run_roof_lines(run: Run) -> Iterator[str]:
    if run.has("bytes") or run.has("flops"):
        roof = roofline.find_roof(run)
        text = roofline.describe_roof(roof, roofline.find_dtype(run)) if roof else "unknown for its device"
        yield f"  roof: {text}"


def _iter_machine_lines() -> Iterator[str]:
    system = f"{platform.system()} {platform.machine()}"
    yield f"python {platform.python_version()} on {system}, {os.cpu_count()} cores"
    for name in _LISTED_PACKAGES:
        yield f"  {name:14} {find_version(name) or 'not installed'}"
    screen = "yes" if _options.has_screen() else "no"
    yield f"terminal: TERM={os.environ.get('TERM', '(unset)')}, screen {screen}"
    has_torch = importlib.util.find_spec("torch") is not None
    yield f"live: {'yes' if has_torch else 'no, torch is not installed (pip install tracetui[live])'}"
    yield from iter_driver_lines()
    yield "decode kernels on a GPU: unproved (tracetui help gpu)"
    yield f"compiled scanner of Chrome traces: {scan.state()}"
    way = "through Python (unproved)" if hasattr(sys, "remote_exec") else "through gdb"
    yield f"live --pid: {explain_attach_limits() or f'yes, {way}'}"
    yield from _iter_user_rule_lines()
    yield from _iter_plugin_lines()
    yield from iter_roof_lines()
    yield from iter_weight_lines()


def measure_roof(device: str) -> Roof:
    """Measure the roof of a device and save it for all later runs."""
    roof = device_roofs.from_meta(_ask_engine("roofs", "--device", device).get("roof"))
    if roof is None:
        raise EngineError("the engine measured nothing")
    device_roofs.save_measured_roof(roof)
    return roof


def describe_load() -> str:
    """Return a warning if the machine is too busy for a measurement, else nothing."""
    try:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
    except OSError:
        return ""
    warning = f"the machine is busy (load {load:.1f} on {cores} cores): measure again when it is idle"
    return warning if load > cores * BUSY_LOAD_SHARE else ""


def iter_roof_lines() -> Iterator[str]:
    """Yield every known roof: measured, or from the table for a GPU of this machine."""
    measured = list(device_roofs.load_measured_roofs().values())
    place = device_roofs.find_measured_roofs_file() if measured else f"none measured ({MEASURE_COMMAND})"
    yield f"roofs: {place}"
    for roof in measured:
        yield from iter_roof_entry(roof)
    devices = {roof.device for roof in measured}
    for gpu in (name for name in dict.fromkeys(nvidia.read_gpu_names()) if name not in devices):
        vendor_roof = device_roofs.from_table(gpu)
        yield from iter_roof_entry(vendor_roof) if vendor_roof else (f"  {gpu}: none ({MEASURE_COMMAND})",)


def iter_roof_choice(text: str) -> Iterator[str]:
    """Yield the roof of a device by its name, or the one that is given, and all others known of it."""
    roof = device_roofs.read_roof(text)
    name = clean(text, 80)
    measured = [r for r in device_roofs.load_measured_roofs().values() if r.device == text]
    table = [r for kind in device_roofs.KINDS if (r := device_roofs.from_table(text, kind))]
    if roof.source == device_roofs.BY_OPTION:
        table = [roof]
    yield f"{name}: {roof.device}" if roof.device else f"{name}:"
    for each in table:
        yield f"  {roofline.describe_origin(each)}: {', '.join(_iter_roof_rates(each))}"
        if each.origin:
            yield f"    {each.origin}"
    for each in measured:
        yield from iter_roof_entry(each)
    yield "held against: --roof, else what the recording measured, else the rates that the maker states"
    if len(table) > 1:
        yield "fix gives what is recoverable from the stated down to the achievable rates"
    if roof.flop_per_s:
        yield "dense products; a format without units of its own has the rate of the next wider one"


def iter_roof_entry(roof: Roof) -> Iterator[str]:
    """Yield a device, its rates, and their source."""
    yield f"  {roof.device}: {', '.join(_iter_roof_rates(roof))}"
    if roof.source == device_roofs.FROM_TABLE:
        yield f"    {roofline.describe_origin(roof)}: {roof.origin} ({MEASURE_COMMAND})"
    else:
        versions = (f"{name} {of}" for name, of in (("torch", roof.torch), ("driver", roof.driver)) if of)
        origin = (f"{roof.source} {roof.when}".rstrip(), *versions, *_iter_stale_reasons(roof))
        yield f"    {', '.join(origin)}"


def _iter_roof_rates(roof: Roof) -> Iterator[str]:
    low, high = (units.format_giga(rate / 1e9) for rate in (roof.read_low, roof.read_high))
    spread = f" ({low} to {high})" if roof.read_low else ""
    if roof.read_bytes_per_s:
        yield f"read {units.format_giga(roof.read_bytes_per_s / 1e9)} GB/s{spread}"
    if roof.copy_bytes_per_s:
        word = "memory" if roof.kind else "copy"
        yield f"{word} {units.format_giga(roof.copy_bytes_per_s / 1e9)} GB/s"
    rates = roof.flop_per_s.items()
    if roof.kind and rates:
        yield "TFLOP/s: " + " ".join(f"{name} {rate / 1e12:g}" for name, rate in rates)
    else:
        yield from (f"{name} {units.format_giga(rate / 1e9)} GFLOP/s" for name, rate in rates)
    yield from _iter_roof_limits(roof)


def _iter_roof_limits(roof: Roof) -> Iterator[str]:
    if roof.link_bytes_per_s:
        yield f"link {units.format_giga(roof.link_bytes_per_s / 1e9)} GB/s"
    if roof.power_w:
        yield f"power {roof.power_w:.0f} W"
    if roof.floor_ns:
        yield f"launch floor {units.format_duration(roof.floor_ns)}"
    if roof.profiled_op_ns:
        yield f"torch's profiler {units.format_duration(roof.profiled_op_ns)} an op"


def _iter_stale_reasons(roof: Roof) -> Iterator[str]:
    """Yield why a saved roof is not used by new runs."""
    torch, driver = find_version("torch"), nvidia.read_driver_version()
    for what, then, now in (("torch", roof.torch, torch), ("the driver", roof.driver, driver)):
        if then and now and then != now:
            yield f"not used: {what} is {now} now ({MEASURE_COMMAND})"


def iter_driver_lines() -> Iterator[str]:
    """Yield why torch does not use the GPU of this machine, if a reason is known."""
    if (built := _read_cuda_of_torch()) is not None and (why := nvidia.explain_unused_gpu(built)):
        yield f"gpu: not used: {why}"


def _read_cuda_of_torch() -> str | None:
    """Return torch's CUDA version, empty for a build without CUDA, None without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    match = re.search(r"^cuda\b[^=\n]*= '([\d.]+)'", text, re.MULTILINE)
    return match[1] if match else ""


def iter_weight_lines() -> Iterator[str]:
    """Yield where weights are searched, and what was found per known model."""
    try:
        answer = _ask_engine("weights")["weights_found"]
    except (CaptureError, KeyError) as e:
        yield f"weights: search failed: {e}"
        return
    absent = "" if answer["there"] else ", which does not exist"
    yield f"weights: {answer['folder']} ({answer['why']}){absent}"
    yield from map(_format_weights, answer["found"])
    yield from (f"Ollama: {store['folder']}" for store in answer["ollama"] if store["there"])
    if answer["others"]:
        yield "other local models, by their names for --model"
    yield from map(_format_weights, answer["others"])


def _format_weights(entry: Mapping[str, Any]) -> str:
    model = f"  {entry['model']:14}"
    if "refused" in entry:
        return f"{model} refused: {entry['refused']}"
    if "names" in entry:
        return f"{model} random: none found under {', '.join(entry['names'])}"
    size = units.format_size(entry["bytes"])
    if "file" in entry:
        return f"{model} {entry['stored_as']}, {size}: {entry['file']}"
    shards = f"{entry['shards']} shard{'s' * (entry['shards'] != 1)}, {size}"
    tokenizer = "tokenizer" if entry["tokenizer"] else "no tokenizer.json: token ids in place of text"
    return f"{model} config, {shards}, {tokenizer}: {entry['folder']}"


def _ask_engine(what: str, *more: str) -> Mapping[str, Any]:
    """Return the engine's report about this machine."""
    from capture.load_runs import load

    with tempfile.TemporaryDirectory(prefix="tracetui-") as folder:
        out = Path(folder) / "report.jsonl"
        engine = BundledEngine(("--tell", what, *more), out)
        try:
            while engine.is_running:
                time.sleep(ENGINE_POLL_S)
        finally:
            engine.stop()
        if engine.explain_failure():
            raise engine.build_error()
        return load(out, cache=False)[0].meta
