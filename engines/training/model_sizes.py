"""The CS336 models as data, and the memory that a training step of each takes.

They are llama-like: RMS norms, rotation, gated feed-forward, untied head. Everything is fp32, or products are
bf16 by torch's autocast; weights, gradients and moments are fp32 either way.
"""

import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from capture.errors import EngineError, UsageError

NAME_PREFIX: Final = "cs336-"
FP32_BYTES: Final = 4
BF16_BYTES: Final = 2
LIBRARY_BYTES: Final = 1 << 27  # bytes that the libraries take for themselves
MALLOC_FACTOR: Final = 1.4  # what a process was seen to hold of what its tensors need
DEFAULT_VOCAB: Final = 10_000
OPTIMIZERS: Final = ("cs336", "foreach", "fused")
ATTENTIONS: Final = ("explicit", "sdpa")
CONTEXTS: Final = (128, 256, 512, 1024)


@dataclass(frozen=True)
class ModelSize:
    """A model of the family, and the settings of its training."""

    name: str
    width: int
    ffn: int
    layers: int
    heads: int
    vocab: int = DEFAULT_VOCAB
    batch: int = 4
    context: int = 128
    has_explicit_attention: bool = True  # attention as its own matrices and softmax; else torch's fused one
    is_mixed_precision: bool = False  # products in bf16
    is_on_cpu: bool = False  # on a processor, where malloc keeps much of what is freed
    theta: float = 1e4
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def tokens(self) -> int:
        return self.batch * self.context

    @property
    def score_count(self) -> int:
        """Elements of one layer's score matrices."""
        return self.batch * self.heads * self.context**2

    @property
    def _stored_scores(self) -> int:
        return self.score_count if self.has_explicit_attention else 0

    @property
    def product_bytes(self) -> int:
        """Bytes of a number that a product reads or writes."""
        return BF16_BYTES if self.is_mixed_precision else FP32_BYTES

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.list_tensors().values())

    def list_tensors(self) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every parameter."""
        d, f = self.width, self.ffn
        shapes: dict[str, tuple[int, ...]] = {"token_embeddings": (self.vocab, d)}
        for i in range(self.layers):
            shapes |= {f"layers.{i}.attn.{n}_proj": (d, d) for n in ("q", "k", "v", "output")}
            shapes |= {
                f"layers.{i}.ffn.w1": (f, d),
                f"layers.{i}.ffn.w2": (d, f),
                f"layers.{i}.ffn.w3": (f, d),
            }
            shapes |= {f"layers.{i}.ln1": (d,), f"layers.{i}.ln2": (d,)}
        return {**shapes, "ln_final": (d,), "lm_head": (self.vocab, d)}

    def count_state_bytes(self) -> int:
        """Return the bytes of parameters, gradients and both moments."""
        return 4 * FP32_BYTES * self.parameters

    def count_saved_bytes(self) -> int:
        """Return the bytes that the forward pass saves for the backward pass."""
        if self.is_mixed_precision:
            return self._count_saved_bytes_mixed()
        layer = self.tokens * (10 * self.width + 4 * self.ffn) + 2 * self._stored_scores
        return FP32_BYTES * (self.layers * layer + self.tokens * (3 * self.width + self.vocab))

    def _count_saved_bytes_mixed(self) -> int:
        """Return the same for bf16 products, whose inputs are saved before and after the cast."""
        layer = self.tokens * (46 * self.width + 8 * self.ffn) + 8 * self._stored_scores
        matrices = sum(math.prod(shape) for shape in self.list_tensors().values() if len(shape) == 2)
        copies = BF16_BYTES * (matrices - self.vocab * self.width)  # of all but the embeddings
        return self.layers * layer + self.tokens * (10 * self.width + 4 * self.vocab) + copies

    def estimate_bytes(self, optimizer: str = "cs336") -> int:
        """Estimate the peak of a step, with several copies of the logits or the scores."""
        temporary = max(2 * self.tokens * self.vocab, 3 * self._stored_scores)
        copies = 2 * self.parameters if optimizer == "foreach" else 3 * self.vocab * self.width
        peak = max(self.count_saved_bytes() + FP32_BYTES * temporary, FP32_BYTES * copies)
        tensors = self.count_state_bytes() + peak
        return LIBRARY_BYTES + (round(MALLOC_FACTOR * tensors) if self.is_on_cpu else tensors)

    def with_layers(self, layers: int) -> "ModelSize":
        """Return the model with fewer layers, named as a part. Raise UsageError for more than it has."""
        if not 1 <= layers <= self.layers:
            raise UsageError(f"--layers {layers}: {self.name} has 1 to {self.layers}")
        if layers == self.layers:
            return self
        return replace(self, name=f"{self.name} ({layers} of {self.layers} layers)", layers=layers)


SIZES: Final = {
    size.name: size
    for size in (
        ModelSize("cs336-small", 768, 3072, 12, 12),
        ModelSize("cs336-medium", 1024, 4096, 24, 16),
        ModelSize("cs336-large", 1280, 5120, 36, 20),
        ModelSize("cs336-xl", 1600, 6400, 48, 25),
        ModelSize("cs336-2.7B", 2560, 10240, 32, 32),
    )
}


def find_size(model: str) -> ModelSize:
    """Return the size of a name, with or without family prefix. Raise UsageError for an unknown name."""
    by_name = {name.lower().removeprefix(NAME_PREFIX): size for name, size in SIZES.items()}
    by_name |= {name.lower(): size for name, size in SIZES.items()}
    if size := by_name.get(model.lower()):
        return size
    similar = difflib.get_close_matches(model.lower(), by_name, n=1, cutoff=0.6)
    todo = f"did you mean {by_name[similar[0]].name}?" if similar else f"choose one of: {', '.join(SIZES)}"
    raise UsageError(f"unknown model to train {model}", todo=todo)


def check_fits(size: ModelSize, free: int, optimizer: str = "cs336") -> None:
    """Raise EngineError if a size exceeds the free bytes, with the sum and what would fit."""
    needed = size.estimate_bytes(optimizer)
    if needed > free:
        raise EngineError(
            f"training {size.name} does not fit",
            why=f"weights, gradients and moments take {_format_gb(size.count_state_bytes())}, "
            f"with activations {_format_gb(needed)}; {_format_gb(free)} are free",
            todo=_describe_smaller(size, free, optimizer),
        )


def _describe_smaller(size: ModelSize, limit: int, optimizer: str) -> str:
    """Describe the largest choice of each kind that would fit."""
    choices_that_fit = []
    for choices in _iter_smaller_choices(size):
        needs = ((option, smaller.estimate_bytes(optimizer)) for option, smaller in choices)
        choices_that_fit += [(option, needed) for option, needed in needs if needed <= limit][:1]
    listed = ", ".join(f"{option} ({_format_gb(needed)})" for option, needed in choices_that_fit)
    return f"these fit: {listed}" if choices_that_fit else "no size of the family fits"


def _iter_smaller_choices(size: ModelSize) -> Iterator[list[tuple[str, ModelSize]]]:
    """Iterate over fewer layers, fewer positions, one sequence, smaller models; largest first."""
    yield [(f"--layers {n}", replace(size, layers=n)) for n in range(size.layers - 1, 0, -1)]
    yield [(f"--context {c}", replace(size, context=c)) for c in reversed(CONTEXTS) if c < size.context]
    yield [("--batch 1", replace(size, batch=1))]
    names = ("batch", "context", "has_explicit_attention", "is_mixed_precision", "is_on_cpu")
    settings: dict[str, Any] = {name: getattr(size, name) for name in names}
    smaller = (s for s in reversed(SIZES.values()) if s.parameters < size.parameters)
    yield [(s.name, replace(s, **settings)) for s in smaller]


def _format_gb(n: int) -> str:
    return f"{n / 1e9:.1f} GB"
