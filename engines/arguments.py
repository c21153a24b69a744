"""The command line of an engine: options, their defaults by mode, what is refused without torch."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from engines.ranks import launch
from engines.training import options as training_options
from engines.weights.download import lies_here, wanted
from engines.weights.names import find

MODEL: Final = "gemma-3-1b"
PREFILL: Final = 512  # tokens of a prompt
IN_TITLE: Final = (  # beside the model
    "quant",
    "dtype",
    "path",
    "graph",
    "device",
    "context",
    "threads",
    "layers",
    "attention",
    "optimizer",
)
AS_STORED: Final = "auto"
QUANTS: Final = (AS_STORED, "q0f16", "q4f16_1", "q4f32_1", "q8_0")
PROMPT: Final = "Why does a decode step read every weight once?"


def parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m engines`."""
    top = argparse.ArgumentParser(prog="python -m engines", description="a decoder that records every step")
    add = top.add_argument
    add("--mode", default="decode", choices=("decode", "prefill", "train"))
    add(
        "--model",
        help="a known model, a folder, a .gguf, or a name of Hugging Face or Ollama that lies here; "
        f"{MODEL}, in training {training_options.MODEL}",
    )
    add("--download", action="store_true", help="fetch the weights from huggingface.co if they are not here")
    add("--out", type=Path, required=True, help="the file that event lines are appended to")
    add("--weights", default="auto", metavar="auto|random|PATH", help="where the weights come from")
    add(
        "--dtype",
        default="auto",
        choices=("auto", "fp32", "fp16", "bf16"),
        help="of the weights; in training bf16 is that of the products on the way forward",
    )
    add(
        "--quant",
        default=AS_STORED,
        choices=QUANTS,
        help="weights in 16 bits, or packed into 4 or 8; auto: as a .gguf stores them, else 16 bits",
    )
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps", "xpu"))
    add("--path", default="fused", choices=("fused", "granular"), help="one product for q, k, v, or three")
    add("--graph", action=argparse.BooleanOptionalAction, help="replay fused kernels as a CUDA graph")
    _add_amounts(add)
    training_options.add_options(add, positive, natural)
    _add_run(add)
    return top


def _add_amounts(add: Callable[..., object]) -> None:
    """Add the prompt, and the options that are numbers."""
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


def _add_run(add: Callable[..., object]) -> None:
    """Add what is recorded, what is done in place of decoding, and how the process behaves."""
    add("--capture", default="windows", choices=("off", "spans", "windows", "continuous"))
    add("--tell", choices=("roofs", "weights"), help="of this machine, in place of decoding")
    add("--check", action="store_true", help="only say whether these arguments would be taken")
    add("--interactive", action="store_true", help="wait for prompts on stdin when one is answered")
    add("--die-with-parent", action="store_true", help="end when the process that started this one does")
    add("--slow", action="append", default=[], type=slowdown, help=argparse.SUPPRESS)


def natural(text: str) -> int:
    """Return a number from 0 on. Raise ValueError for another text."""
    number = int(text)
    if not 0 <= number <= 1 << 31:
        raise ValueError(text)
    return number


def positive(text: str) -> int:
    """Return a number from 1 on. Raise ValueError for another text."""
    if natural(text) == 0:
        raise ValueError(text)
    return int(text)


def slowdown(text: str) -> tuple[str, float]:
    """Return the op and the factor of OP:FACTOR: what a test wants to be slower, and how many times."""
    name, _, factor = text.rpartition(":")
    return name, float(factor)


def set_defaults(args: argparse.Namespace) -> argparse.Namespace:
    """Fill in what nobody chose and the mode decides; return the same arguments."""
    training = args.mode == "train"
    args.model = args.model or (training_options.MODEL if training else MODEL)
    args.batch = args.batch or (training_options.BATCH if training else 1)
    args.context = args.context or (PREFILL if args.mode == "prefill" else 0)
    return args


def validate(args: argparse.Namespace) -> None:
    """Raise UsageError for what can be refused before torch is imported: models, ranks, options of a mode."""
    if args.mode == "train":
        training_options.read_options(args)
        if args.ranks > 1:
            raise UsageError("training runs on one rank", todo="leave out --ranks")
        return
    training_options.refuse_elsewhere(args)
    if args.weights not in ("auto", "random"):
        if args.download:
            raise UsageError("--download is of --weights auto", todo="leave one of the two out")
        return
    if args.download and not lies_here(args.model):
        wanted(args.model)
        return
    known = find(args.model).preset
    if args.weights == "random" and known is None:
        raise UsageError(f"{args.model} has sizes only with its weights", todo="leave out --weights random")
    if known and args.ranks > 1:
        launch.share(known, args.ranks)


def title(args: argparse.Namespace) -> str:
    """Return the model and what else was chosen, so that two runs of one model differ in name."""
    default = parser().get_default
    chosen = {name: getattr(args, name, None) for name in IN_TITLE}
    other = {n: v for n, v in chosen.items() if v is not None and v != default(n)}
    return " ".join([args.model, *(v if isinstance(v, str) else f"{n}={v}" for n, v in other.items())])
