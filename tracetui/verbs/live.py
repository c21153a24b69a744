"""`tracetui live`: an engine decodes, and the screen follows its file."""

from argparse import ArgumentParser, Namespace

from tracetui.verbs import _shared, record


def options(parser: ArgumentParser) -> None:
    record.engine_options(parser)
    _shared.screen_options(parser)


def run(args: Namespace) -> int:
    if not _shared.has_screen():
        _shared.say("no terminal to draw on; recording instead")
        return record.run(Namespace(**vars(args), quiet=False))
    from tracetui.ui.app import run as show

    out = record.place(args)
    engine = record.engine(args, out, interactive=True)
    counters = record.counters(out, engine)
    try:
        code = show([str(out)], _shared.screen(args, follow=True, engine=engine))
    finally:
        engine.stop()
        counters.stop()
    _shared.say(f"recorded {out}")
    return code
