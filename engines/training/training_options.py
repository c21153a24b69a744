"""Options of training, and the model size that they request; light to import."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from capture.errors import UsageError
from engines.training.model_sizes import ATTENTIONS, CONTEXTS, OPTIMIZERS, SIZES, ModelSize, find_size

DEFAULT_BATCH: Final = 4
DEFAULT_MODEL: Final = next(iter(SIZES))
PLAIN_QUANTS: Final = ("auto", "q0f16")  # values of --quant that do not quantise
TRAINING_DTYPES: Final = ("auto", "fp32", "bf16")  # auto: fp32
_TRAINING_ONLY: Final = ("layers", "attention", "optimizer", "warm_up")


@dataclass(frozen=True)
class TrainingOptions:
    """What the arguments of a training run request."""

    size: ModelSize
    attention: str
    optimizer: str
    warm_up: int | None  # None: as many steps as the device needs


def add_options(add: Callable[..., Any], number: Callable[[str], int], count: Callable[[str], int]) -> None:
    """Add the options that only training has; `number` and `count` parse integers from 1 and from 0."""
    add("--layers", type=number, help="in training: number of layers to train")
    add("--attention", choices=ATTENTIONS, help="in training: written out, or torch's fused op")
    add("--optimizer", choices=OPTIMIZERS, help="in training: AdamW tensor by tensor, or torch's")
    add("--warm-up", type=count, help="in training: steps that are not recorded")


def refuse_training_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options and models of training in another mode."""
    for name in _TRAINING_ONLY:
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} requires --mode train", why=f"this is --mode {args.mode}")
    if args.model in SIZES:
        raise UsageError(f"{args.model} can only be trained", todo="use --mode train")


def choose_label(args: argparse.Namespace) -> str:
    """Return the name of what is trained, perhaps only some layers; the argument if training refuses it."""
    try:
        return read_options(args).size.name
    except UsageError:
        return str(args.model)


def read_options(args: argparse.Namespace) -> TrainingOptions:
    """Read what to train, and how. Raise UsageError for what training does not support."""
    if args.weights not in ("auto", "random"):
        raise UsageError("training starts from random weights", todo="omit --weights")
    if args.dtype not in TRAINING_DTYPES:
        todo = f"choose one of: {', '.join(TRAINING_DTYPES)}"
        raise UsageError(f"training does not support --dtype {args.dtype}", todo=todo)
    if args.quant not in PLAIN_QUANTS:
        raise UsageError("training does not support --quant", todo="omit --quant")
    if args.slow:
        raise UsageError("--slow is not supported in --mode train")
    context, attention = args.context or CONTEXTS[0], args.attention or ATTENTIONS[0]
    full = find_size(args.model)
    size = replace(
        full,
        batch=args.batch,
        context=context,
        has_explicit_attention=attention == ATTENTIONS[0],
        is_mixed_precision=args.dtype == "bf16",
    )
    chosen = size if args.layers is None else size.with_layers(args.layers)
    return TrainingOptions(chosen, attention, args.optimizer or OPTIMIZERS[0], args.warm_up)
