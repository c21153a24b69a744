"""`tracetui live`: an engine decodes, and the screen follows its file."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracetui.process import Engine
from tracetui.samples import resolved
from tracetui.threads import leave_the_cores
from tracetui.verbs import _engine, _shared

if TYPE_CHECKING:
    from capture.run import Run

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
    _shared.screen_options(parser)


def run(args: Namespace) -> int:
    """Start the engine, show its file until the person leaves, and return the exit code."""
    if not _shared.has_screen():
        return _recorded(args)
    beside = _beside(args)
    out = _engine.place(args)
    engine = _engine.started(args, out, interactive=True)
    try:
        code = _shown(args, out, engine, beside)
    finally:
        engine.stop()
    _shared.say(f"recorded {out}" if kept(out) else "nothing was recorded")
    return code


def kept(out: Path) -> bool:
    """Tell whether a step was recorded; a file without any is removed, one that cannot be read stays."""
    from capture.errors import CaptureError
    from capture.open import load
    from tracetui.verbs import record

    if not out.exists():
        return False
    if not out.stat().st_size:
        out.unlink()
        return False
    try:
        return out.stat().st_size > SMALL or record.kept(out, load(out))
    except CaptureError:
        return True


def _recorded(args: Namespace) -> int:
    leave_the_cores()
    from tracetui.verbs import record

    _shared.say("no terminal to draw on; recording instead")
    return record.run(Namespace(**vars(args), quiet=False, repeat=1, seconds=None))


def _beside(args: Namespace) -> "tuple[Run, ...]":
    """What the live run is compared with by `d`: the last run of a recording.

    What may be refused is read before an engine is started; where nothing is asked, nothing is imported.
    """
    if args.baseline is None and args.view == _shared.VIEW:
        return ()
    leave_the_cores()
    from capture.open import load_all
    from tracetui.views import view

    view(args.view)
    return () if args.baseline is None else (load_all([args.baseline])[-1],)


def _shown(args: Namespace, out: Path, engine: Engine, beside: "tuple[Run, ...]") -> int:
    """Show the screen and return its exit code; it is imported while the engine starts as well."""
    leave_the_cores()
    from tracetui.ui.app import run as show

    engine.sample_later(out)
    return show([str(out)], _shared.screen(args, follow=True, engine=engine, beside=beside))
