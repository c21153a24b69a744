"""`tracetui live`: an engine decodes, and the screen follows its file."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capture.errors import UsageError
from tracetui.process import Engine
from tracetui.samples import resolved
from tracetui.threads import leave_the_cores
from tracetui.ui import config
from tracetui.verbs import _engine, _program, _shared, _watch

if TYPE_CHECKING:
    from capture.run import Run

VIEW: Final = "now"  # that the screen begins with, where the run can feed it
SMALL: Final = 1 << 20  # bytes that are read at once; more of them hold something


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _engine.options(parser)
    parser.add_argument(
        "--baseline",
        type=resolved,
        metavar="FILE",
        help="a recording, or baseline:NAME, that `d` compares with",
    )
    parser.add_argument("--log", metavar="FILE", help="what a program prints, whole; O shows the end of it")
    _shared.screen_options(parser, None, "the view to begin with; where none is named, now or the summary")


def run(args: Namespace) -> int:
    """Start the engine, show its file until the person leaves, and return the exit code. Raise EngineError
    for an engine that had died by itself.
    """
    if not _shared.has_screen():
        return _recorded(args)
    wanted = config.read()  # a wrong one is refused before anything starts
    _engine.divide(args)
    beside, log = _beside(args, wanted), _log(args)
    out = _engine.place(args)
    engine = _engine.started(args, out, interactive=True, log=log)
    try:
        code = _shown(args, out, engine, beside, wanted)
    finally:
        engine.stop(in_background=True)
    recorded = kept(out, figures=bool(_watch.asked(args)))
    _shared.say(f"recorded {out}" if recorded else "nothing was recorded")
    if engine.failure_reason():
        raise engine.failure(todo=f"what was recorded opens: tracetui open {out}" if recorded else "")
    return code


def _log(args: Namespace) -> Path | None:
    """Return the new file for what a program prints; None where none is asked for. Raise UsageError where
    there is no program, or the file is there already.
    """
    from capture.places import create

    if args.log is None:
        return None
    if not args.command or _watch.asked(args):
        raise UsageError("--log is for a program behind --")
    if not create(Path(args.log)):
        raise UsageError(f"{args.log} is there already", todo="choose another file with --log")
    return Path(args.log)


def kept(out: Path, *, figures: bool = False) -> bool:
    """Tell whether anything timed was recorded, or figures where these count; a file without is removed."""
    if out.exists() and (out.stat().st_size > SMALL or _program.count(out)[1]):
        return True
    if figures and _watch.has_figures(out):
        return True
    out.unlink(missing_ok=True)
    return False


def _recorded(args: Namespace) -> int:
    leave_the_cores()
    from tracetui.verbs import record

    _shared.say("no terminal to draw on; recording instead")
    return record.run(Namespace(**vars(args), quiet=False, repeat=1, seconds=None))


def _beside(args: Namespace, wanted: config.Config) -> "tuple[Run, ...]":
    """What the live run is compared with by `d`: the last run of a recording.

    What may be refused is read before an engine is started; where nothing is asked, nothing is imported.
    """
    if args.baseline is None and args.view is None and not wanted.columns:
        return ()
    leave_the_cores()
    wanted.check_views()
    from capture.open import load_all
    from tracetui.views import module_of

    if args.view is not None:
        module_of(args.view)  # a name that no view has is refused before an engine starts
    return () if args.baseline is None else (load_all([args.baseline])[-1],)


def _shown(
    args: Namespace, out: Path, engine: Engine, beside: "tuple[Run, ...]", wanted: config.Config
) -> int:
    """Show the screen and return its exit code; it is imported while the engine starts as well."""
    leave_the_cores()
    from tracetui.ui.app import run as show

    engine.sample_later(out)
    more = {"follow": True, "engine": engine, "beside": beside}
    options = _shared.screen(
        args, wanted, view=VIEW, instead=_shared.VIEW if args.view is None else None, **more
    )
    return show([str(out)], options)
