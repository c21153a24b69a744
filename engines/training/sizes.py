"""Models to train as data: the CS336 family, and the memory that a step of each takes.

They are llama-like: RMS norms, rotation, a gated feed-forward, an untied head. All is in fp32, or products
are in bf16 by torch's autocast; weights, gradients and moments are in fp32 either way.
"""

import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from capture.errors import EngineError, UsageError

FAMILY: Final = "cs336-"
FP32: Final = 4
BF16: Final = 2
TORCH: Final = 1 << 27  # bytes that the libraries take for themselves
MALLOC: Final = 1.4  # what a process was seen to hold of what its tensors need
VOCAB: Final = 10_000
OPTIMIZERS: Final = ("cs336", "foreach", "fused")
ATTENTIONS: Final = ("explicit", "sdpa")
CONTEXTS: Final = (128, 256, 512, 1024)


@dataclass(frozen=True)
class Size:
    """A model of the family, and what one step of its training takes."""

    name: str
    width: int
    ffn: int
    layers: int
    heads: int
    vocab: int = VOCAB
    batch: int = 4
    context: int = 128
    explicit: bool = True  # attention as its own matrices and softmax; else torch's fused one
    mixed: bool = False  # products in bf16
    on_host: bool = False  # on a processor, where malloc keeps much of what is freed
    theta: float = 1e4
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def tokens(self) -> int:
        return self.batch * self.context

    @property
    def pairs(self) -> int:
        """Elements of one layer's score matrices."""
        return self.batch * self.heads * self.context**2

    @property
    def width_of_products(self) -> int:
        """Bytes of a number that a product reads or writes."""
        return BF16 if self.mixed else FP32

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.tensors().values())

    def tensors(self) -> dict[str, tuple[int, ...]]:
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

    def states(self) -> int:
        """Return the bytes of parameters, gradients and both moments."""
        return 4 * FP32 * self.parameters

    def kept(self) -> int:
        """Return the bytes that the forward pass keeps for the backward pass."""
        if self.mixed:
            return self._kept_mixed()
        layer = self.tokens * (10 * self.width + 4 * self.ffn) + (2 * self.pairs if self.explicit else 0)
        return FP32 * (self.layers * layer + self.tokens * (3 * self.width + self.vocab))

    def _kept_mixed(self) -> int:
        """Return the same with products in bf16: what they read is kept beside what it was made from."""
        layer = self.tokens * (46 * self.width + 8 * self.ffn) + (8 * self.pairs if self.explicit else 0)
        matrices = sum(math.prod(shape) for shape in self.tensors().values() if len(shape) == 2)
        copies = BF16 * (matrices - self.vocab * self.width)  # of all but the embeddings
        return self.layers * layer + self.tokens * (10 * self.width + 4 * self.vocab) + copies

    def bytes_needed(self, optimizer: str = "cs336") -> int:
        """Return what a step holds at its fullest, with several copies of the logits or the scores."""
        passing = max(2 * self.tokens * self.vocab, 3 * self.pairs if self.explicit else 0)
        copies = 2 * self.parameters if optimizer == "foreach" else 3 * self.vocab * self.width
        tensors = self.states() + max(self.kept() + FP32 * passing, FP32 * copies)
        return TORCH + (round(MALLOC * tensors) if self.on_host else tensors)

    def with_layers(self, layers: int) -> "Size":
        """Return a part of the model, named as one. Raise UsageError for layers that it does not have."""
        if not 1 <= layers <= self.layers:
            raise UsageError(f"--layers {layers}: {self.name} has {self.layers}", todo="ask for some of them")
        if layers == self.layers:
            return self
        return replace(self, name=f"{self.name} ({layers} of {self.layers} layers)", layers=layers)


SIZES: Final = {
    size.name: size
    for size in (
        Size("cs336-small", 768, 3072, 12, 12),
        Size("cs336-medium", 1024, 4096, 24, 16),
        Size("cs336-large", 1280, 5120, 36, 20),
        Size("cs336-xl", 1600, 6400, 48, 25),
        Size("cs336-2.7B", 2560, 10240, 32, 32),
    )
}


def size_named(model: str) -> Size:
    """Return the size of that name, with or without its family. Raise UsageError for an unknown name."""
    by_name = {key: size for name, size in SIZES.items() for key in _keys(name)}
    if size := by_name.get(model.lower()):
        return size
    near = difflib.get_close_matches(model.lower(), by_name, n=1, cutoff=0.6)
    todo = f"did you mean {by_name[near[0]].name}?" if near else f"choose one of: {', '.join(SIZES)}"
    raise UsageError(f"no model to train is called {model}", todo=todo)


def _keys(name: str) -> tuple[str, str]:
    return name.lower(), name.lower().removeprefix(FAMILY)


def refuse_beyond(size: Size, limit: int, optimizer: str = "cs336") -> None:
    """Raise EngineError for a size that does not fit into so many bytes, with the sum and what would fit."""
    needed = size.bytes_needed(optimizer)
    if needed > limit:
        raise EngineError(
            f"training {size.name} does not fit",
            why=f"weights, gradients and moments are {_gb(size.states())}, with what the passes hold "
            f"{_gb(needed)}; {_gb(limit)} are free",
            todo=_smaller(size, limit, optimizer),
        )


def _smaller(size: Size, limit: int, optimizer: str) -> str:
    """Return the largest of each kind of choice that would fit."""
    fitting = []
    for choices in _smaller_choices(size):
        needs = ((words, smaller.bytes_needed(optimizer)) for words, smaller in choices)
        fitting += [(words, needed) for words, needed in needs if needed <= limit][:1]
    listed = ", ".join(f"{words} ({_gb(needed)})" for words, needed in fitting)
    return f"these fit: {listed}" if fitting else "no size of the family fits"


def _smaller_choices(size: Size) -> Iterator[list[tuple[str, Size]]]:
    """Yield fewer layers, fewer positions, one sequence, a smaller size; each kind the largest first."""
    yield [(f"--layers {n}", replace(size, layers=n)) for n in range(size.layers - 1, 0, -1)]
    yield [(f"--context {c}", replace(size, context=c)) for c in reversed(CONTEXTS) if c < size.context]
    yield [("--batch 1", replace(size, batch=1))]
    names = ("batch", "context", "explicit", "mixed", "on_host")
    load: dict[str, Any] = {name: getattr(size, name) for name in names}
    yield [(s.name, replace(s, **load)) for s in reversed(SIZES.values()) if s.parameters < size.parameters]


def _gb(n: int) -> str:
    return f"{n / 1e9:.1f} GB"
