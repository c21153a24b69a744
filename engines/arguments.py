"""Command line of an engine: options, defaults per mode, and checks that need no torch."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from engines.ranks import rank_launcher
from engines.training import training_options
from engines.weights.download import is_local, resolve_repository
from engines.weights.model_names import resolve_model

DEFAULT_MODEL: Final = "gemma-3-1b"
PREFILL_TOKENS: Final = 512  # tokens of a prompt
TITLE_OPTIONS: Final = (  # beside the model
    "quant", "dtype", "path", "graph", "device", "context", "threads", "layers", "attention", "optimizer",
)  # fmt: skip
AS_STORED: Final = "auto"
QUANTS: Final = (AS_STORED, "q0f16", "q4f16_1", "q4f32_1", "q8_0")
DEFAULT_PROMPT: Final = "Why does a decode step read every weight once?"


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of `python -m engines`."""
    top = argparse.ArgumentParser(prog="python -m engines", description="a decoder that records every step")
    add = top.add_argument
    add("--mode", default="decode", choices=("decode", "prefill", "train"))
    add(
        "--model",
        help="known model, folder, .gguf file, or local model of Hugging Face or Ollama; default: "
        f"{DEFAULT_MODEL}, in training {training_options.DEFAULT_MODEL}",
    )
    add("--download", action="store_true", help="download missing weights from huggingface.co")
    add("--out", type=Path, required=True, help="file to append event lines to")
    add("--weights", default="auto", metavar="auto|random|PATH", help="source of the weights")
    add(
        "--dtype",
        default="auto",
        choices=("auto", "fp32", "fp16", "bf16"),
        help="of the weights; in training, bf16 applies to products of the forward pass",
    )
    add(
        "--quant",
        default=AS_STORED,
        choices=QUANTS,
        help="weights in 16 bits, or packed in 4 or 8; auto: as stored in a .gguf file, else 16 bits",
    )
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps", "xpu"))
    add("--path", default="fused", choices=("fused", "granular"), help="one product for q, k and v, or three")
    add("--graph", action=argparse.BooleanOptionalAction, help="replay fused kernels as a CUDA graph")
    _add_number_options(add)
    training_options.add_options(add, parse_positive, parse_natural)
    _add_run_options(add)
    return top


def _add_number_options(add: Callable[..., object]) -> None:
    """Add the prompt and the numeric options."""
    add_number = partial(add, type=parse_natural, default=0)
    add_count = partial(add, type=parse_positive)
    add("--prompt", default=DEFAULT_PROMPT)
    add_number(
        "--steps",
        help="tokens to decode, or passes; 0: until the end token, the end of the context or a signal",
    )
    add_number("--context", help="made-up positions to start after; in other modes: positions per sequence")
    add_number("--capacity", help="positions of the cache; 0: as needed")
    training_batch = training_options.DEFAULT_BATCH
    add_count("--batch", help=f"sequences per step (default: 1, in training {training_batch})")
    add_count("--tokens-per-report", default=1, help="decode steps reported as one")
    add("--temperature", type=float, default=0.0)
    add_number("--top-k")
    add("--top-p", type=float, default=1.0)
    add_number("--seed", help="of the random weights and of sampling")
    add_number("--threads", help="0: one per core")
    add_count("--ranks", default=1, help="processes that share the model, as with torchrun")
    add("--run-id", help=argparse.SUPPRESS)


def _add_run_options(add: Callable[..., object]) -> None:
    """Add options for recording, for reports instead of decoding, and for the process."""
    add("--capture", default="windows", choices=("off", "spans", "windows", "continuous"))
    add("--tell", choices=("roofs", "weights"), help="report about this machine instead of decoding")
    add("--check", action="store_true", help="only check the arguments")
    add("--interactive", action="store_true", help="wait for further prompts on stdin")
    add("--die-with-parent", action="store_true", help="end with the parent process")
    add("--slow", action="append", default=[], type=parse_slowdown, help=argparse.SUPPRESS)


def parse_natural(text: str) -> int:
    """Parse an integer from 0 on."""
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 0 on")
    return number


def parse_positive(text: str) -> int:
    """Parse an integer from 1 on."""
    if text.strip("0") == "":
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 1 on")
    return parse_natural(text)


def parse_slowdown(text: str) -> tuple[str, float]:
    """Parse OP:FACTOR: an op that a test slows down, and the factor."""
    name, _, factor = text.rpartition(":")
    return name, float(factor)


def set_defaults(args: argparse.Namespace) -> argparse.Namespace:
    """Fill in the defaults that depend on the mode; return the same arguments."""
    training = args.mode == "train"
    args.model = args.model or (training_options.DEFAULT_MODEL if training else DEFAULT_MODEL)
    args.batch = args.batch or (training_options.DEFAULT_BATCH if training else 1)
    args.context = args.context or (PREFILL_TOKENS if args.mode == "prefill" else 0)
    return args


def validate(args: argparse.Namespace) -> None:
    """Raise UsageError for what needs no torch to be rejected: models, ranks, options of a mode."""
    if args.mode == "train":
        training_options.read_options(args)
        if args.ranks > 1:
            raise UsageError("training supports one rank only", todo="omit --ranks")
        return
    training_options.refuse_training_options(args)
    if args.weights not in ("auto", "random"):
        if args.download:
            raise UsageError("--download requires --weights auto", todo="omit one of the two")
        return
    if args.download and not is_local(args.model):
        resolve_repository(args.model)
        return
    preset = resolve_model(args.model).preset
    if args.weights == "random" and preset is None:
        raise UsageError(f"{args.model} is unknown without its weights", todo="omit --weights random")
    if preset and args.ranks > 1:
        rank_launcher.share_spec(preset, args.ranks)


def build_title(args: argparse.Namespace) -> str:
    """Return the model and all non-default choices, so that runs of one model differ in name."""
    default = build_parser().get_default
    chosen = {name: getattr(args, name, None) for name in TITLE_OPTIONS}
    other = {n: v for n, v in chosen.items() if v is not None and v != default(n)}
    return " ".join([args.model, *(v if isinstance(v, str) else f"{n}={v}" for n, v in other.items())])
