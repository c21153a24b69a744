"""The only door: argv in, events out. stderr is for people, the file for programs.

Nothing heavy is imported before the file has its first line.
"""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from capture.emit import Emitter
from capture.errors import CaptureError, EngineError, UsageError
from engines.commands import Commands, StoppedError
from engines.pulse import Pulse
from engines.spec import preset

PROMPT = "Why does a decode step read every weight once?"


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.check:
        return checked(args)
    rest_soon()
    if args.die_with_parent:
        die_with_parent()
    try:
        emitter = Emitter(args.out)
    except OSError as e:
        return told(UsageError(f"{args.out} cannot be written", why=os.strerror(e.errno or 0).lower()))
    with_id = secrets.token_hex(8)
    about = {} if args.tell else {"model": args.model}
    emitter.run(args.tell or args.model, {**about, "argv": sys.argv, "pid": os.getpid()}, id=with_id)
    pulse = Pulse(emitter)
    pulse.status("looking for weights" if args.tell == "weights" else "importing torch")
    pulse.start()
    try:
        return lived(args, emitter, with_id, pulse)
    finally:
        pulse.stop()
        emitter.end()


def rest_soon() -> None:
    """Threads that wait at a barrier spin for microseconds, then sleep; read once, when torch is imported.

    By default they spin for milliseconds, on the very core that the thread they wait for has lost to another
    process: with one busy neighbour on two cores a step of gemma-3-1b took 1.4 s instead of 0.3 s.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def lived(args: argparse.Namespace, emitter: Emitter, id: str, pulse: Pulse) -> int:
    """Runs the engine and turns every way in which it may end into an exit code and a mark."""
    commands = Commands()
    commands.listen()
    try:
        if args.tell:
            tell(args, emitter, id, pulse)
        else:
            known(args.model, args.weights)
            from engines.start import run

            run(args, emitter, id, pulse, commands)
    except CaptureError as e:
        emitter.mark(str(e), "error")
        return told(e)
    except StoppedError as e:
        emitter.mark(f"stopped by {e}", "log")
        return 128 + e.number
    except Exception as e:  # the last word of a dying engine belongs into its recording
        failed = EngineError(f"{type(e).__name__}: {str(e)[:1000]}")
        emitter.mark(str(failed), "error")
        return told(failed)
    return 0


def tell(args: argparse.Namespace, emitter: Emitter, id: str, pulse: Pulse) -> None:
    """What is known of this machine, as the meta of a run that does nothing else."""
    if args.tell == "weights":
        from engines import hub

        hub.tell(emitter, id)
    else:
        from engines import roofs
        from engines.start import find_device

        roofs.tell(find_device(args.device), emitter, id, pulse)


def checked(args: argparse.Namespace) -> int:
    """Whether these arguments would be taken, as far as that is known before torch is there."""
    try:
        known(args.model, args.weights)
    except CaptureError as e:
        return told(e)
    return 0


def known(model: str, weights: str) -> None:
    """Refuses a model that does not exist before torch is imported for it."""
    if weights in ("auto", "random") and not (weights == "auto" and Path(model).expanduser().is_dir()):
        preset(model)


def told(error: CaptureError) -> int:
    print(f"engines: {error}", file=sys.stderr)
    return error.exit_code


def die_with_parent() -> None:
    """So that no engine stays on a device when its explorer is killed; Linux only."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGTERM)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m engines", description="a decoder that records every step")
    add = top.add_argument
    add("--model", default="gemma-3-1b", help="a known model or a folder")
    add("--out", type=Path, required=True, help="the file that event lines are appended to")
    add("--weights", default="auto", metavar="auto|random|DIR", help="where the weights come from")
    add("--dtype", default="auto", choices=("auto", "fp32", "fp16", "bf16"))
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps", "xpu"))
    add("--path", default="fused", choices=("fused", "granular"), help="one product for q, k, v, or three")
    add("--prompt", default=PROMPT)
    add(
        "--steps",
        type=natural,
        default=0,
        help="tokens to decode; 0: until the end token or the context's end",
    )
    add("--context", type=natural, default=0, help="start behind so many made-up positions")
    add("--capacity", type=natural, default=0, help="positions to make room for; 0: as needed")
    add("--batch", type=positive, default=1, help="sequences at once")
    add("--tokens-per-report", type=positive, default=1, help="decode steps that are reported as one")
    add("--temperature", type=float, default=0.0)
    add("--top-k", type=natural, default=0)
    add("--top-p", type=float, default=1.0)
    add("--seed", type=natural, default=0, help="of the random weights and of sampling")
    add("--threads", type=natural, default=0, help="0: one a core")
    add("--capture", default="windows", choices=("spans", "windows", "continuous"))
    add("--tell", choices=("roofs", "weights"), help="of this machine, in place of decoding")
    add("--check", action="store_true", help="only say whether these arguments would be taken")
    add("--interactive", action="store_true", help="wait for prompts on stdin when one is answered")
    add("--die-with-parent", action="store_true", help="end when the process that started this one does")
    add("--slow", action="append", default=[], type=slowing, help=argparse.SUPPRESS)
    return top


def natural(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 1 << 31:
        raise ValueError(text)
    return number


def positive(text: str) -> int:
    if natural(text) == 0:
        raise ValueError(text)
    return int(text)


def slowing(text: str) -> tuple[str, float]:
    """OP:FACTOR, a name or a role of an op that a test wants to be slower."""
    name, _, factor = text.rpartition(":")
    return name, float(factor)


if __name__ == "__main__":
    sys.exit(main())
