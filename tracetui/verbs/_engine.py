"""Options of the engine for live and record, and its start; no table is imported for that."""

import os
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path

from capture.errors import CaptureError, UsageError
from capture.native.parts import SETTING
from tracetui.process import Bundled, Engine, Foreign
from tracetui.verbs import _running, _shared, _watch

MODELS = {"decode": "gemma-3-1b", "prefill": "gemma-3-1b", "train": "cs336-small"}
QUANTS = ("auto", "q0f16", "q4f16_1", "q4f32_1", "q8_0")


def options(parser: ArgumentParser) -> None:
    """Declare what the engine is asked; a command after -- takes its place."""
    parser.add_argument("--mode", default="decode", choices=tuple(MODELS), help="what the engine does")
    _model_options(parser)
    parser.add_argument("--prompt", metavar="TEXT", help="what the model shall answer")
    parser.add_argument("--steps", type=int, metavar="N", help="how many; without a screen a few")
    parser.add_argument(
        "--context", type=int, metavar="N", help="begin so deep; in the other modes: the length"
    )
    parser.add_argument("--batch", type=int, metavar="N", help="sequences at once")
    parser.add_argument(
        "--tokens-per-report", type=int, metavar="N", help="tokens that one step row stands for"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="of the processor; one a core")
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="processes that share the model, as torchrun starts them"
    )
    parser.add_argument("--path", choices=("granular", "fused"), help="rows as small as they come, or fused")
    parser.add_argument("--graph", action=BooleanOptionalAction, help="fused kernels replayed as a graph")
    modes = ("off", "spans", "windows", "continuous")
    parser.add_argument("--capture", choices=modes, help="how much is watched")
    parser.add_argument("--slow", metavar="OP:FACTOR", help="slow one op down, to try the diff on")
    _sampling_options(parser)
    _training_options(parser)
    _watch.options(parser)
    _running.option(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where the recording goes")
    about = "begin another file when one is so large, as in 1GB; all of them open as one"
    parser.add_argument("--part-size", type=_shared.size, metavar="SIZE", help=about)
    parser.add_argument(
        "command",
        nargs="*",
        metavar="-- CMD",
        help="any program instead of the bundled engine, or the address of a server: http://HOST:PORT",
    )


def _model_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        help=f"{' or '.join(dict.fromkeys(MODELS.values()))}, a folder, a .gguf file, or a name of "
        "Hugging Face or Ollama that lies on this machine",
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch weights that do not lie here from huggingface.co"
    )
    parser.add_argument("--weights", default="auto", help="auto, random, a folder or a .gguf file")
    about = "what it runs on; auto takes the best that is here"
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps", "xpu"), help=about)
    parser.add_argument("--dtype", default="auto", help="auto, fp32, fp16 or bf16")
    parser.add_argument(
        "--quant",
        choices=QUANTS,
        help="weights in 16 bits, or packed into 4 or 8; auto: as a .gguf file has them",
    )


def _sampling_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("how tokens are drawn").add_argument
    add("--temperature", type=float, metavar="T", help="0: the likeliest token")
    add("--top-k", type=int, metavar="N", help="draw from the N likeliest tokens")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest that make up P")
    add("--seed", type=int, metavar="N", help="of the draws, and of random weights")


def _training_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("with --mode train").add_argument
    add("--layers", type=int, metavar="N", help="so many of the model's layers")
    add("--attention", choices=("explicit", "sdpa"), help="written out, or fused by torch")
    add("--optimizer", choices=("cs336", "foreach", "fused"), help="AdamW tensor by tensor, or by torch")
    add("--warm-up", type=int, metavar="N", help="steps that are not recorded")


def started(args: Namespace, out: Path, *, interactive: bool = False, log: Path | None = None) -> Engine:
    """Start the engine or the command that was asked for; its lines go to `out`, its words to `log`."""
    if _watch.asked(args):
        return _watch.started(args, out)
    if args.pid is not None:
        return _running.started(args, out)
    if args.command:
        return Foreign(args.command, out, log)
    return Bundled(arguments(args), out, interactive=interactive)


def divide(args: Namespace) -> None:
    """Have every recorder that is started from now on begin another file where one is as large as asked."""
    if args.part_size is not None:
        os.environ[SETTING] = str(args.part_size)


def arguments(args: Namespace) -> list[str]:
    """Return the engine's options, those that were given."""
    names = (
        "mode",
        "model",
        "weights",
        "device",
        "dtype",
        "quant",
        "prompt",
        "steps",
        "context",
        "batch",
        "tokens_per_report",
        "temperature",
        "top_k",
        "top_p",
        "seed",
        "threads",
        "ranks",
        "path",
        "capture",
        "slow",
        "layers",
        "attention",
        "optimizer",
        "warm_up",
    )
    given = ((f"--{name.replace('_', '-')}", getattr(args, name)) for name in names)
    valued = [part for name, value in given if value is not None for part in (name, str(value))]
    flags = ["--download"] if args.download else []
    if args.graph is not None:
        flags.append("--graph" if args.graph else "--no-graph")
    return valued + flags


def _name(args: Namespace) -> str:
    if args.pid is not None:
        return f"pid-{args.pid}"
    return Path(args.command[0]).name if args.command else args.model or MODELS[args.mode]


def place(args: Namespace, end: str = "") -> Path:
    """Return the empty file that the recording goes to: as asked, else a new one among the recordings. Raise
    UsageError where it is there already or cannot be made. `end` is added to its name.
    """
    _watch.check(args)
    _running.check(args)
    if args.output is None:
        return _new(args, end)
    asked = Path(args.output)
    return _made(asked.with_stem(asked.stem + end) if end else asked)


def places(args: Namespace, count: int) -> list[Path]:
    """Return so many empty files, numbered from one, as `place` does; none is left where one fails."""
    made: list[Path] = []
    try:
        for number in range(1, count + 1):
            made.append(place(args, f"-{number:0{len(str(count))}}"))
    except CaptureError:
        for out in made:
            out.unlink()
        raise
    return made


def _new(args: Namespace, end: str) -> Path:
    from capture.places import new_recording, recordings_warning

    if warning := recordings_warning():
        _shared.say(warning)
    return new_recording((_watch.asked(args) or _name(args)) + end)


def _made(out: Path) -> Path:
    from capture.places import create

    if not create(out):
        raise UsageError(f"{out} is there already", todo="choose another file with -o, or remove it")
    return out
