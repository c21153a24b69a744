"""`tracetui live`: start an engine, a program or a watcher, and follow its file on the screen."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capture.errors import EngineError, UsageError
from tracetui.process import EngineProcess
from tracetui.process_tuning import use_one_polars_thread
from tracetui.samples import resolve_file
from tracetui.ui.screen_config import ScreenConfig, read_config
from tracetui.verbs import _engine_options, _options, _recording, log

if TYPE_CHECKING:
    from capture.run import Run

FIRST_LIVE_VIEW: Final = "now"  # of the screen, if the run can feed it
SCANNED_BYTES: Final = 1 << 20  # larger files are not scanned: they contain rows


def options(parser: ArgumentParser) -> None:
    _engine_options.add_engine_options(parser)
    about = "recording, or baseline:NAME, that the key `d` compares with"
    add = _options.find_group(parser, "screen").add_argument
    add("--baseline", type=resolve_file, metavar="FILE", help=about)
    about = "file for the complete output of the program; the key O shows its end"
    add("--log", metavar="FILE", help=about)
    _options.add_screen_options(parser, None, "first view (default: now, or summary)")


def run(args: Namespace) -> int:
    """Start the engine, show its file until the user leaves, and return the exit code.

    Raise EngineError if the engine failed.
    """
    if not _options.has_screen():
        return _record_without_screen(args)
    config = read_config()  # reject an invalid one before anything starts
    _engine_options.set_recorder_options(args)
    baseline, output = _load_baseline(args, config), _create_log_file(args)
    out = _engine_options.create_output_file(args)
    engine = _engine_options.start_engine(args, out, interactive=True, log=output)
    try:
        code = _show_screen(args, out, engine, baseline, config)
    finally:
        engine.stop(in_background=True)
    if fault := _recording.explain_lost_file(out):
        raise EngineError(fault)
    if gaps := engine.gap_warning or _recording.find_gaps(out):
        _options.print_status(f"the recording has gaps: {gaps.partition('gaps: ')[2] or gaps}")
    recorded = keep_if_recorded(out, counters=bool(_engine_options.name_watch_target(args)))
    _options.print_status(f"recorded {out}" if recorded else "nothing was recorded")
    if engine.explain_failure():
        raise engine.build_error(todo=f"open the recording: tracetui open {out}" if recorded else "")
    return code or (log.keep_recordings(args, [out]) if recorded else 0)


def _create_log_file(args: Namespace) -> Path | None:
    """Create the file of --log, None without it; raise UsageError if there is no program, or it exists."""
    from capture.files.user_dirs import create_private_file

    if args.log is None:
        return None
    if not args.command or _engine_options.name_watch_target(args):
        raise UsageError("--log needs a program after --")
    if not create_private_file(Path(args.log)):
        raise UsageError(f"{args.log} already exists", todo="choose another file with --log")
    return Path(args.log)


def keep_if_recorded(out: Path, *, counters: bool = False) -> bool:
    """Whether anything timed was recorded (with `counters`: or counters); if not, remove the file."""
    is_large = out.exists() and out.stat().st_size > SCANNED_BYTES
    if (
        is_large
        or _recording.count_steps_and_rows(out)[1]
        or (counters and _engine_options.has_counters(out))
    ):
        return True
    out.unlink(missing_ok=True)
    return False


def _record_without_screen(args: Namespace) -> int:
    use_one_polars_thread()
    from tracetui.verbs import record

    _options.print_status("no terminal: recording instead")
    return record.run(Namespace(**vars(args), quiet=False, repeat=1, seconds=None))


def _load_baseline(args: Namespace, config: ScreenConfig) -> "tuple[Run, ...]":
    """Load the last run of --baseline, for `d`.

    What may be rejected is read before an engine starts; without any of these options nothing is imported.
    """
    if args.baseline is None and args.view is None and not config.columns:
        return ()
    use_one_polars_thread()
    config.check_views()
    from capture.load_runs import load_all
    from tracetui.views import check_view_name

    if args.view is not None:
        check_view_name(args.view)  # before an engine starts
    return () if args.baseline is None else (load_all([args.baseline])[-1],)


def _show_screen(
    args: Namespace, out: Path, engine: EngineProcess, baseline: "tuple[Run, ...]", config: ScreenConfig
) -> int:
    """Show the screen and return its exit code; it is imported while the engine starts."""
    use_one_polars_thread()
    from tracetui.ui.app import run as show

    engine.defer_sampling(out)
    fallback_view = _options.FIRST_VIEW if args.view is None else None
    more = {"follow": True, "engine": engine, "comparison_runs": baseline, "fallback_view": fallback_view}
    return show([str(out)], _options.build_screen_options(args, config, view=FIRST_LIVE_VIEW, **more))
