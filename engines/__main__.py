"""Entry point of the engine: arguments in, recording out. stderr is for people, the file for programs.

Nothing heavy is imported before the file has its first line.
"""

import argparse
import gc
import os
import secrets
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final

from capture.errors import CaptureError, EngineError, UsageError
from capture.native.emit import Emitter
from capture.record import torchrun
from engines import arguments
from engines.host.engine_commands import Commands, RunningEngine, StoppedError
from engines.host.heartbeat import Heartbeat
from engines.ranks import rank_launcher
from engines.training import training_options
from engines.weights.download import fetch_model, is_local

GC_THRESHOLDS: Final = (50_000, 20, 100)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the engine for these arguments; return its exit code."""
    args = arguments.set_defaults(arguments.build_parser().parse_args(argv))
    rank = torchrun.read_rank(os.environ)
    args.ranks = rank.size if rank else args.ranks
    if args.check:
        return check_arguments(args)
    tune_process()
    if args.die_with_parent:
        end_with_parent()
    # ranks share a file, or each has its own in a folder
    out = args.out / f"rank-{rank.number}.jsonl" if rank and args.out.is_dir() else args.out
    try:
        emitter = Emitter(out, rank=rank.number if rank else None)
    except OSError as e:
        return print_error(UsageError(f"{out} cannot be written", why=os.strerror(e.errno or 0).lower()))
    engine = RunningEngine(args, emitter, choose_run_id(args, rank), Heartbeat(emitter), Commands(), rank)
    open_run(engine)
    if args.ranks > 1 and rank is None:
        return run_ranks(engine, list(sys.argv[1:] if argv is None else argv))
    return run_here(engine)


def choose_run_id(args: argparse.Namespace, rank: torchrun.Rank | None) -> str:
    """Return the given run id, the id that all ranks share, or a new one."""
    return args.run_id or (torchrun.build_run_id(os.environ, rank) if rank else secrets.token_hex(8))


def check_arguments(args: argparse.Namespace) -> int:
    """Return the exit code of an argument check, as far as possible without torch."""
    try:
        arguments.validate(args)
    except CaptureError as e:
        return print_error(e)
    return 0


def open_run(engine: RunningEngine) -> None:
    """Write the first line of the recording: what runs, and in which process."""
    args = engine.args
    model = training_options.choose_label(args) if args.mode == "train" else args.model
    meta = {} if args.tell else {"model": model}
    name = args.tell or arguments.build_title(args)
    engine.write_meta(name, {**meta, "argv": sys.argv, "pid": os.getpid()})


def run_ranks(engine: RunningEngine, argv: list[str]) -> int:
    """Run the engine as several ranks; return the exit code."""
    args, emitter = engine.args, engine.emitter
    emitter.mark(f"starting {args.ranks} ranks", "status")
    emitter.flush()
    try:
        arguments.validate(args)
        rank_launcher.launch_ranks(args.ranks, [*argv, "--run-id", engine.id], engine.id)
    except (CaptureError, StoppedError) as e:
        return report_end(e, emitter)
    finally:
        emitter.end()
    return 0


def run_here(engine: RunningEngine) -> int:
    """Run the engine in this process, with a heartbeat; close the recording and return the exit code."""
    emitter, heartbeat = engine.emitter, engine.heartbeat
    heartbeat.write_status("looking for weights" if engine.args.tell == "weights" else "importing torch")
    heartbeat.start()
    engine.commands.listen(reads_lines=engine.rank is None or engine.rank.number == 0)
    code = 0
    try:
        run_mode(engine)
    except (CaptureError, StoppedError) as e:
        code = report_end(e, emitter)
    except Exception as e:  # the recording must tell why its engine died
        code = report_end(convert_failure(e), emitter)
    finally:
        heartbeat.stop()
        emitter.end()
    return code or (print_error(EngineError(emitter.unwritten)) if emitter.unwritten else 0)


def run_mode(engine: RunningEngine) -> None:
    """Import torch, and run the engine of the mode, or describe this machine."""
    args, heartbeat = engine.args, engine.heartbeat
    if args.tell:
        describe_machine(engine)
        return
    arguments.validate(args)
    if args.download and not is_local(args.model):
        heartbeat.write_status("downloading the weights")
        fetch_model(args.model)
        heartbeat.write_status("importing torch")
    if args.mode == "train":
        from engines.training.training_loop import run as train

        train(engine)
    else:
        from engines.decode_run import run as decode

        decode(engine)


def describe_machine(engine: RunningEngine) -> None:
    """Write this machine's weights or roofs as the meta of a run without steps."""
    if engine.args.tell == "weights":
        from engines.weights import model_names

        engine.write_meta("weights", {"weights_found": model_names.survey_models()})
    else:
        from engines.host import measure_roofs
        from engines.startup_choices import find_device

        device = find_device(engine.args.device)
        roof = measure_roofs.measure_roof(device, engine.heartbeat.write_status)
        engine.write_meta(roof.device, {"roof": roof.as_meta()})


def convert_failure(error: Exception) -> EngineError:
    """Convert an unexpected exception to an EngineError; a missing torch gets install advice."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return EngineError("torch is not installed", todo="pip install 'tracetui[live]'")
    return EngineError(f"{type(error).__name__}: {str(error)[:1000]}")


def report_end(error: CaptureError | StoppedError, emitter: Emitter) -> int:
    """Write an early end as a mark, print an error; return the exit code."""
    if isinstance(error, StoppedError):
        emitter.mark(f"stopped by {error}", "log")
        return 128 + error.number
    emitter.mark(str(error), "error")
    return print_error(error)


def print_error(error: CaptureError) -> int:
    """Hand an error to the launcher of this rank, or print it if there is none; return the exit code."""
    if not rank_launcher.report_error(error):
        print(f"engines: {error}", file=sys.stderr)
    return error.exit_code


def tune_process() -> None:
    """Set garbage collection and thread waiting before torch is imported; the user's environment wins.

    The garbage collector runs rarely: what an import creates stays, and collecting took a fifth of the time
    of importing torch.

    Threads at a barrier spin for some 150 µs, as long as the work between two products, and then sleep. The
    default is milliseconds; if another program takes a core, a spinning thread then blocks the one that it
    waits for. Beside a busy process on two cores, a step of qwen2.5-0.5b (13 ms undisturbed) took 90 to 150
    ms with 500 µs, takes 40 to 75 ms with 150 µs, and 20 to 32 ms with 50 µs, but then small models lose a
    tenth on a quiet machine.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def end_with_parent() -> None:
    """End this process with its parent, so that no engine stays on a device alone; Linux only."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGTERM)
    stdin = select.poll()
    stdin.register(0, 0)  # a hang-up is reported unasked: nobody is at the other end any more
    if any(event & select.POLLHUP for _, event in stdin.poll(0)):
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
