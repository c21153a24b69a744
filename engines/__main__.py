"""The entry point of an engine: arguments in, events out. stderr is for people, the file for programs.

Nothing heavy is imported before the file has its first line.
"""

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from capture.errors import CaptureError, EngineError, UsageError
from capture.native.emit import Emitter
from capture.record import torchrun
from engines import arguments
from engines.host.commands import Commands, StoppedError
from engines.host.heartbeat import Heartbeat
from engines.host.process import die_with_parent, tune
from engines.ranks import launch
from engines.training import options as training_options
from engines.weights.download import fetch, lies_here


def main(argv: Sequence[str] | None = None) -> int:
    """Run an engine as the arguments ask; return its exit code."""
    args = arguments.set_defaults(arguments.parser().parse_args(argv))
    rank = torchrun.of_environment(os.environ)
    args.ranks = rank.size if rank else args.ranks
    if args.check:
        return check(args)
    tune()
    if args.die_with_parent:
        die_with_parent()
    out = launch.file_of(args.out, rank) if rank else args.out
    try:
        emitter = Emitter(out, rank=rank.number if rank else None)
    except OSError as e:
        return print_error(cannot_write(out, e))
    id = run_id(args, rank)
    open_run(args, emitter, id)
    if args.ranks > 1 and rank is None:
        return run_ranks(args, list(sys.argv[1:] if argv is None else argv), emitter, id)
    return run_here(args, emitter, id, rank)


def run_here(args: argparse.Namespace, emitter: Emitter, id: str, rank: torchrun.Rank | None) -> int:
    """Run the engine in this process, with a heartbeat, and close the recording; return the exit code."""
    heartbeat = Heartbeat(emitter)
    heartbeat.status("looking for weights" if args.tell == "weights" else "importing torch")
    heartbeat.start()
    try:
        code = run_guarded(args, emitter, id, heartbeat, rank)
    finally:
        heartbeat.stop()
        emitter.end()
    return code or (print_error(EngineError(emitter.unwritten)) if emitter.unwritten else 0)


def check(args: argparse.Namespace) -> int:
    """Return as an exit code whether these arguments would be taken, as far as known without torch."""
    try:
        arguments.validate(args)
    except CaptureError as e:
        return print_error(e)
    return 0


def run_id(args: argparse.Namespace, rank: torchrun.Rank | None) -> str:
    """Return the id of the run: the one given, the one that all ranks share, or a new one."""
    if args.run_id:
        return str(args.run_id)
    return torchrun.run_id(os.environ, rank) if rank else secrets.token_hex(8)


def cannot_write(out: Path, error: OSError) -> UsageError:
    """Return the error for a recording that cannot be opened."""
    return UsageError(f"{out} cannot be written", why=os.strerror(error.errno or 0).lower())


def open_run(args: argparse.Namespace, emitter: Emitter, id: str) -> None:
    """Write the first line of the recording: what is run, and by which process."""
    model = training_options.label(args) if args.mode == "train" else args.model
    about = {} if args.tell else {"model": model}
    name = args.tell or arguments.title(args)
    emitter.run(name, {**about, "argv": sys.argv, "pid": os.getpid()}, id=id)


def run_ranks(args: argparse.Namespace, argv: list[str], emitter: Emitter, id: str) -> int:
    """Run the engine as several ranks; return the exit code of how they ended."""
    emitter.mark(f"starting {args.ranks} ranks", "status")
    emitter.flush()
    try:
        arguments.validate(args)
        launch.launch(args.ranks, [*argv, "--run-id", id], id)
    except (CaptureError, StoppedError) as e:
        return report_end(e, emitter)
    finally:
        emitter.end()
    return 0


def run_guarded(
    args: argparse.Namespace, emitter: Emitter, id: str, heartbeat: Heartbeat, rank: torchrun.Rank | None
) -> int:
    """Run the engine; turn every way in which it may end into an exit code and a mark."""
    commands = Commands()
    commands.listen(lines=rank is None or rank.number == 0)
    try:
        if args.tell:
            describe_machine(args, emitter, id, heartbeat)
        else:
            arguments.validate(args)
            download(args, heartbeat)
            run(args, emitter, id, heartbeat, commands, rank)
    except (CaptureError, StoppedError) as e:
        return report_end(e, emitter)
    except Exception as e:  # the last word of a dying engine belongs into its recording
        return report_end(failure(e), emitter)
    return 0


def failure(error: Exception) -> EngineError:
    """Return the error that ended an engine, in words; without torch how it is installed."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return EngineError("torch is not installed", todo="pip install 'tracetui[live]'")
    return EngineError(f"{type(error).__name__}: {str(error)[:1000]}")


def download(args: argparse.Namespace, heartbeat: Heartbeat) -> None:
    """Fetch the weights where that was asked for and they are not here."""
    if args.download and not lies_here(args.model):
        heartbeat.status("downloading the weights")
        fetch(args.model)
        heartbeat.status("importing torch")


def run(
    args: argparse.Namespace,
    emitter: Emitter,
    id: str,
    heartbeat: Heartbeat,
    commands: Commands,
    rank: torchrun.Rank | None,
) -> None:
    """Import torch, and run the engine of the mode."""
    if args.mode == "train":
        from engines.training.start import run as train

        train(args, emitter, id, heartbeat, commands)
    else:
        from engines.build import run as decode

        decode(args, emitter, id, heartbeat, commands, rank)


def describe_machine(args: argparse.Namespace, emitter: Emitter, id: str, heartbeat: Heartbeat) -> None:
    """Write what is known of this machine's weights or roofs, as the meta of a run without steps."""
    if args.tell == "weights":
        from engines.weights import survey

        survey.write_survey(emitter, id)
    else:
        from engines.choices import find_device
        from engines.host import roofs

        roofs.write_roofs(find_device(args.device), emitter, id, heartbeat)


def report_end(error: CaptureError | StoppedError, emitter: Emitter) -> int:
    """Write an early end as a mark, print an error; return the exit code."""
    if isinstance(error, StoppedError):
        emitter.mark(f"stopped by {error}", "log")
        return 128 + error.number
    emitter.mark(str(error), "error")
    return print_error(error)


def print_error(error: CaptureError) -> int:
    """Hand an error to the launcher of this rank, or print it where there is none; return the exit code."""
    if not launch.report(error):
        print(f"engines: {error}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
