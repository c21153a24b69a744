"""The only door: argv in, events out. stderr is for people, the file for programs.

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
from pathlib import Path

from capture.errors import CaptureError, EngineError, UsageError
from capture.native.emit import Emitter
from capture.record import torchrun
from engines.host.commands import Commands, StoppedError
from engines.host.heartbeat import Pulse
from engines.models.catalogue import preset
from engines.ranks import launch
from engines.training import options as training_options

MODEL = "gemma-3-1b"
PREFILL = 512  # tokens of a prompt
TELLING = (  # beside the model, in a title
    "quant", "dtype", "path", "graph", "device", "context", "threads", "layers", "attention", "optimizer",
)  # fmt: skip
COLLECT = (50_000, 20, 100)
QUANTS = ("q0f16", "q4f16_1", "q4f32_1", "q8_0")
PROMPT = "Why does a decode step read every weight once?"


def main(argv: Sequence[str] | None = None) -> int:
    args = completed(parser().parse_args(argv))
    rank = torchrun.of_environment(os.environ)
    args.ranks = rank.size if rank else args.ranks
    if args.check:
        return checked(args)
    settle()
    if args.die_with_parent:
        die_with_parent()
    out = launch.file_of(args.out, rank) if rank else args.out
    try:
        emitter = Emitter(out, rank=rank.number if rank else None)
    except OSError as e:
        return told(UsageError(f"{out} cannot be written", why=os.strerror(e.errno or 0).lower()))
    with_id = args.run_id or (torchrun.run_id(os.environ, rank) if rank else secrets.token_hex(8))
    model = training_options.label(args) if args.mode == "train" else args.model
    about = {} if args.tell else {"model": model}
    emitter.run(args.tell or title(args), {**about, "argv": sys.argv, "pid": os.getpid()}, id=with_id)
    if args.ranks > 1 and rank is None:
        return launched(args, list(sys.argv[1:] if argv is None else argv), emitter, with_id)
    pulse = Pulse(emitter)
    pulse.status("looking for weights" if args.tell == "weights" else "importing torch")
    pulse.start()
    try:
        code = lived(args, emitter, with_id, pulse, rank)
    finally:
        pulse.stop()
        emitter.end()
    return code or (told(EngineError(emitter.unwritten)) if emitter.unwritten else 0)


def title(args: argparse.Namespace) -> str:
    """The model and what else was chosen, so that two runs of one model are told apart."""
    usual = parser()
    chosen = {name: getattr(args, name, None) for name in TELLING}
    other = {n: v for n, v in chosen.items() if v is not None and v != usual.get_default(n)}
    return " ".join([args.model, *(v if isinstance(v, str) else f"{n}={v}" for n, v in other.items())])


def settle() -> None:
    """What must stand before torch is imported; what a user has set in the environment stays.

    The collector looks rarely: what an import makes stays, and looking through it took a fifth of torch's.

    Threads that wait at a barrier spin for some 150 µs, as long as what lies between two products, and then
    sleep. By default they spin for milliseconds, and where a neighbour has taken a core, perhaps on the very
    one that the awaited thread is to run on: beside one busy process on two cores a step of qwen2.5-0.5b,
    13 ms alone, took 90 to 150 ms with half a millisecond of spinning, and takes 40 to 75 ms like this. With
    50 µs it takes 20 to 32 ms, but small models lose a tenth where nobody disturbs them.
    """
    gc.set_threshold(*COLLECT)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def launched(args: argparse.Namespace, arguments: list[str], emitter: Emitter, id: str) -> int:
    """Runs the engine as several ranks, and tells how they ended."""
    emitter.mark(f"starting {args.ranks} ranks", "status")
    emitter.flush()
    try:
        known(args)
        launch.launch(args.ranks, [*arguments, "--run-id", id], id)
    except (CaptureError, StoppedError) as e:
        return fell(e, emitter)
    finally:
        emitter.end()
    return 0


def lived(
    args: argparse.Namespace, emitter: Emitter, id: str, pulse: Pulse, rank: torchrun.Rank | None
) -> int:
    """Runs the engine and turns every way in which it may end into an exit code and a mark."""
    commands = Commands()
    commands.listen(lines=rank is None or rank.number == 0)
    try:
        if args.tell:
            tell(args, emitter, id, pulse)
        else:
            known(args)
            start(args, emitter, id, pulse, commands, rank)
    except (CaptureError, StoppedError) as e:
        return fell(e, emitter)
    except Exception as e:  # the last word of a dying engine belongs into its recording
        return fell(EngineError(f"{type(e).__name__}: {str(e)[:1000]}"), emitter)
    return 0


def fell(error: CaptureError | StoppedError, emitter: Emitter) -> int:
    """An end before the end, as a mark and an exit code."""
    if isinstance(error, StoppedError):
        emitter.mark(f"stopped by {error}", "log")
        return 128 + error.number
    emitter.mark(str(error), "error")
    return told(error)


def start(
    args: argparse.Namespace, emitter: Emitter, id: str, pulse: Pulse, commands: Commands,
    rank: torchrun.Rank | None,
) -> None:  # fmt: skip
    """The engine of the mode; now torch is imported."""
    if args.mode == "train":
        from engines.training.start import run as train

        train(args, emitter, id, pulse, commands)
    else:
        from engines.build import run

        run(args, emitter, id, pulse, commands, rank)


def tell(args: argparse.Namespace, emitter: Emitter, id: str, pulse: Pulse) -> None:
    """What is known of this machine, as the meta of a run that does nothing else."""
    if args.tell == "weights":
        from engines.weights import hub

        hub.tell(emitter, id)
    else:
        from engines.build import find_device
        from engines.host import roofs

        roofs.tell(find_device(args.device), emitter, id, pulse)


def checked(args: argparse.Namespace) -> int:
    """Whether these arguments would be taken, as far as that is known before torch is there."""
    try:
        known(args)
    except CaptureError as e:
        return told(e)
    return 0


def completed(args: argparse.Namespace) -> argparse.Namespace:
    """What nobody chose and the mode decides."""
    training = args.mode == "train"
    args.model = args.model or (training_options.MODEL if training else MODEL)
    args.batch = args.batch or (training_options.BATCH if training else 1)
    args.context = args.context or (PREFILL if args.mode == "prefill" else 0)
    return args


def known(args: argparse.Namespace) -> None:
    """Refuses a model that does not exist before torch is imported for it."""
    if args.mode == "train":
        training_options.asked(args)
        if args.ranks > 1:
            raise UsageError("training runs on one rank", todo="leave out --ranks")
        return
    training_options.refuse_elsewhere(args)
    folder = args.weights == "auto" and Path(args.model).expanduser().is_dir()
    if args.weights in ("auto", "random") and not folder:
        spec = preset(args.model)
        if args.ranks > 1:
            launch.share(spec, args.ranks)


def told(error: CaptureError) -> int:
    if not launch.report(error):
        print(f"engines: {error}", file=sys.stderr)
    return error.exit_code


def die_with_parent() -> None:
    """So that no engine stays on a device when its explorer is killed; Linux only."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGTERM)
    stdin = select.poll()
    stdin.register(0, 0)  # a hang-up is told unasked: nobody is at the other end any more
    if any(event & select.POLLHUP for _, event in stdin.poll(0)):
        sys.exit(128 + signal.SIGTERM)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m engines", description="a decoder that records every step")
    add = top.add_argument
    add("--mode", default="decode", choices=("decode", "prefill", "train"))
    add("--model", help=f"a known model or a folder; {MODEL}, in training {training_options.MODEL}")
    add("--out", type=Path, required=True, help="the file that event lines are appended to")
    add("--weights", default="auto", metavar="auto|random|DIR", help="where the weights come from")
    add(
        "--dtype",
        default="auto",
        choices=("auto", "fp32", "fp16", "bf16"),
        help="of the weights; in training bf16 is that of the products on the way forward",
    )
    add("--quant", default="q0f16", choices=QUANTS, help="weights in 16 bits, or packed into 4 or 8")
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps", "xpu"))
    add("--path", default="fused", choices=("fused", "granular"), help="one product for q, k, v, or three")
    add("--graph", action=argparse.BooleanOptionalAction, help="replay fused kernels as a CUDA graph")
    add("--prompt", default=PROMPT)
    add(
        "--steps",
        type=natural,
        default=0,
        help="tokens to decode, or passes; 0: until the end token, the context's end or a signal",
    )
    add(
        "--context",
        type=natural,
        default=0,
        help="start behind so many made-up positions; in the other modes: positions of a sequence",
    )
    add("--capacity", type=natural, default=0, help="positions to make room for; 0: as needed")
    add("--batch", type=positive, help=f"sequences at once: 1, in training {training_options.BATCH}")
    add("--tokens-per-report", type=positive, default=1, help="decode steps that are reported as one")
    add("--temperature", type=float, default=0.0)
    add("--top-k", type=natural, default=0)
    add("--top-p", type=float, default=1.0)
    add("--seed", type=natural, default=0, help="of the random weights and of sampling")
    add("--threads", type=natural, default=0, help="0: one a core")
    add("--ranks", type=positive, default=1, help="processes that share the model, as torchrun starts them")
    add("--run-id", help=argparse.SUPPRESS)
    training_options.add_options(add, positive, natural)
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
