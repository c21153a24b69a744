"""`tracetui baseline [NAME [FILE]]`: runs kept under a name, written `baseline:NAME` wherever a file is."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from capture import places
from capture.errors import UsageError
from capture.run import Run
from tracetui.chosen import choose
from tracetui.samples import resolved
from tracetui.verbs import _shared


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("name", nargs="?", help="of the baseline; without one all are listed")
    parser.add_argument(
        "files",
        nargs="*",
        type=resolved,
        metavar="FILE",
        help="the profile to keep under this name; of several identical ones the middle, and their spread",
    )
    parser.add_argument("--run", dest="which", metavar="N|NAME", help="which run of the file")
    parser.add_argument("--replace", action="store_true", help="take the place of the baseline of this name")
    parser.add_argument("--remove", action="store_true", help="forget the baseline")
    parser.add_argument("--no-cache", action="store_true", help="parse anew, write no cache")
    parser.add_argument("--strict", action="store_true", help="exit 4 when a part could not be read")


def run(args: Namespace) -> int:
    """List, show, keep or remove baselines."""
    if args.name is None:
        return _list()
    place = places.baseline(args.name)
    if args.remove:
        return _remove(place, args.name)
    if args.files:
        return _keep(args, place)
    if not place.exists():
        raise UsageError(
            f"no baseline is called {args.name!r}", todo=f"tracetui baseline {args.name} FILE makes it"
        )
    sys.stdout.write(f"{place}\n")
    return 0


def _list() -> int:
    for place in places.baselines():
        sys.stdout.write(f"{place.stem}\t{place}\n")
    return 0


def _remove(place: Path, name: str) -> int:
    if not place.exists():
        raise UsageError(f"no baseline is called {name!r}")
    place.unlink()
    return 0


def _keep(args: Namespace, place: Path) -> int:
    from capture.export import export

    if place.exists() and not args.replace:
        raise UsageError(f"baseline:{args.name} is there already", todo="--replace takes its place")
    if len(args.files) > 1:
        return _keep_repeats(args, place)
    runs = _shared.load(args)
    if len(runs) > 1 and args.which is None:
        names = ", ".join(f"{i}: {r.name}" for i, r in enumerate(runs, 1))
        raise UsageError(f"{args.files[0]} holds {len(runs)} runs", todo=f"choose one with --run: {names}")
    export([runs[choose(runs, args.which)]], place, overwrite=True)
    _shared.say(f"kept as baseline:{args.name}")
    return 0


def _keep_repeats(args: Namespace, place: Path) -> int:
    """Keep the middle one of identical runs, with what they differ by: the floor of later comparisons."""
    from capture.export import export
    from capture.open import load_all
    from tracetui.analysis.compare.floor import measured
    from tracetui.analysis.compare.repeats import middle
    from tracetui.analysis.select import total

    of_file = [load_all([file], cache=not args.no_cache) for file in args.files]
    repeats = [runs[choose(runs, args.which)] for runs in of_file]
    floor = measured(repeats)
    if floor is None:
        raise UsageError("what these runs differ by cannot be told", todo="name two recordings of the same")
    kept = repeats[middle([total(run) or 0 for run in repeats])]
    stated = {"spread": floor.spread, "runs": int(floor.freedom) + 1}
    meta = {**kept.meta, "floor": stated}
    run = Run(kept.name, meta, kept.events, kept.log, kept.tables)
    export([run], place, overwrite=True)
    _shared.say(f"kept as baseline:{args.name}; {stated['runs']} runs of it differ by {floor.percent}")
    return 0
