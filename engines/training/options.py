"""The options of training, and the model size that they ask for. Nothing heavy is imported."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from capture.errors import UsageError
from engines.training.sizes import ATTENTIONS, CONTEXTS, OPTIMIZERS, SIZES, Size, size_named

BATCH: Final = 4
MODEL: Final = next(iter(SIZES))
PLAIN: Final = ("auto", "q0f16")  # as the door calls weights that are not quantised
DTYPES: Final = ("auto", "fp32", "bf16")  # auto: fp32
_ONLY_HERE: Final = ("layers", "attention", "optimizer", "warm_up")


@dataclass(frozen=True)
class TrainingOptions:
    """What the arguments of a training run ask for."""

    size: Size
    attention: str
    optimizer: str
    warm_up: int | None  # None: as many steps as the device needs


def add_options(add: Callable[..., Any], number: Callable[[str], int], count: Callable[[str], int]) -> None:
    """Add the options that only training has; none has a value until it is asked for."""
    add("--layers", type=number, help="in training: so many of the model's layers")
    add("--attention", choices=ATTENTIONS, help="in training: written out, or as torch fuses it")
    add("--optimizer", choices=OPTIMIZERS, help="in training: AdamW tensor by tensor, or by torch")
    add("--warm-up", type=count, help="in training: steps that are not written down")


def refuse_elsewhere(args: argparse.Namespace) -> None:
    """Raise UsageError for what only training knows, in another mode."""
    for name in _ONLY_HERE:
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is of --mode train", why=f"this is --mode {args.mode}")
    if args.model in SIZES:
        raise UsageError(f"{args.model} is there to be trained", todo="ask for --mode train")


def label(args: argparse.Namespace) -> str:
    """Return the name of what is trained, a part named as one; the argument itself where it is no name."""
    try:
        return read_options(args).size.name
    except UsageError:
        return str(args.model)


def read_options(args: argparse.Namespace) -> TrainingOptions:
    """Return what is to be trained, and how. Raise UsageError for what training cannot do."""
    if args.weights not in ("auto", "random"):
        raise UsageError("training begins with random weights", todo="leave --weights out")
    if args.dtype not in DTYPES:
        raise UsageError(
            f"training is in fp32 or with products in bf16, not in {args.dtype}",
            todo=f"choose one of: {', '.join(DTYPES)}",
        )
    if args.quant not in PLAIN:
        raise UsageError("training is not quantised", todo="leave --quant out")
    if args.slow:
        raise UsageError("--slow is not of --mode train")
    context, attention = args.context or CONTEXTS[0], args.attention or ATTENTIONS[0]
    whole = size_named(args.model)
    size = replace(
        whole,
        batch=args.batch,
        context=context,
        explicit=attention == ATTENTIONS[0],
        mixed=args.dtype == "bf16",
    )
    part = size if args.layers is None else size.with_layers(args.layers)
    return TrainingOptions(part, attention, args.optimizer or OPTIMIZERS[0], args.warm_up)
