"""`tracetui baseline [NAME [FILE]]`: save runs under a name; `baseline:NAME` works wherever a file does."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from capture.errors import UsageError
from capture.files import user_dirs
from capture.run import Run
from tracetui.samples import resolve_file
from tracetui.verbs import _options


def options(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="name of the baseline; without one all are listed")
    about = "profile to save; of several identical ones the middle one and their spread"
    parser.add_argument("files", nargs="*", type=resolve_file, metavar="FILE", help=about)
    parser.add_argument("--run", dest="which", metavar="N|NAME", help="run of the file to save")
    parser.add_argument("--replace", action="store_true", help="overwrite an existing baseline")
    parser.add_argument("--remove", action="store_true", help="remove the baseline")
    _options.add_options(parser, "--no-cache")
    parser.add_argument("--strict", action="store_true", help="exit with 4 if a part could not be read")


def run(args: Namespace) -> int:
    """List, show, save or remove baselines."""
    if args.name is None:
        sys.stdout.writelines(f"{file.stem}\t{file}\n" for file in user_dirs.list_baselines())
        return 0
    file = user_dirs.build_baseline_path(args.name)
    if args.files and not args.remove:
        _save_baseline(args, file)
        return 0
    if not file.exists():
        todo = "" if args.remove else f"tracetui baseline {args.name} FILE creates it"
        raise UsageError(f"no baseline is called {args.name!r}", todo=todo)
    if args.remove:
        file.unlink()
    else:
        sys.stdout.write(f"{file}\n")
    return 0


def _save_baseline(args: Namespace, file: Path) -> None:
    from capture.export_runs import export
    from capture.load_runs import format_run_names, resolve_run_index

    if file.exists() and not args.replace:
        raise UsageError(f"baseline:{args.name} already exists", todo="--replace overwrites it")
    if len(args.files) > 1:
        _save_repeats(args, file)
        return
    runs = _options.load_runs(args)
    if len(runs) > 1 and args.which is None:
        todo = f"choose one with --run: {format_run_names(runs)}"
        raise UsageError(f"{args.files[0]} has {len(runs)} runs", todo=todo)
    export([runs[resolve_run_index(runs, args.which)]], file, overwrite=True)
    _options.print_status(f"saved as baseline:{args.name}")


def _save_repeats(args: Namespace, target: Path) -> None:
    """Save the middle one of identical runs with their spread: the noise floor of later comparisons."""
    from capture.export_runs import export
    from capture.load_runs import load_all, resolve_run_index
    from tracetui.analysis.frames.selection import compute_total_ns
    from tracetui.compare.evidence.repeat_test import find_median_run, measure_floor

    of_file = (load_all([file], cache=not args.no_cache) for file in args.files)
    repeats = [runs[resolve_run_index(runs, args.which)] for runs in of_file]
    floor = measure_floor(repeats)
    if floor is None:
        todo = "name two recordings of the same program"
        raise UsageError("the run-to-run spread cannot be estimated", todo=todo)
    representative = repeats[find_median_run([compute_total_ns(run) or 0 for run in repeats])]
    count = int(floor.freedom) + 1
    meta = {**representative.meta, "floor": {"spread": floor.spread, "runs": count}}
    run = Run(representative.name, meta, representative.events, representative.log, representative.tables)
    export([run], target, overwrite=True)
    _options.print_status(f"saved as baseline:{args.name}; its {count} runs differ by {floor.percent}")
