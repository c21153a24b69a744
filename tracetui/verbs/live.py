"""`tracetui live`: an engine decodes, and the screen follows its file."""

from argparse import ArgumentParser, Namespace

from capture.run import Run
from tracetui.verbs import _shared, record


def options(parser: ArgumentParser) -> None:
    record.engine_options(parser)
    parser.add_argument(
        "--baseline", metavar="FILE", help="a recording, or baseline:NAME, that `d` compares with"
    )
    _shared.screen_options(parser)


def run(args: Namespace) -> int:
    if not _shared.has_screen():
        _shared.say("no terminal to draw on; recording instead")
        return record.run(Namespace(**vars(args), quiet=False))
    from tracetui.ui.app import run as show

    beside = _beside(args.baseline)
    out = record.place(args)
    engine = record.engine(args, out, interactive=True)
    engine.sample_into(out)
    try:
        code = show([str(out)], _shared.screen(args, follow=True, engine=engine, beside=beside))
    finally:
        engine.stop()
    _shared.say(f"recorded {out}")
    return code


def _beside(baseline: str | None) -> tuple[Run, ...]:
    """What the live run is compared with by `d`: the last run of a recording."""
    if baseline is None:
        return ()
    from capture.loaders import load_all

    return (load_all([baseline])[-1],)
