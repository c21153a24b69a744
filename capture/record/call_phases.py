"""Infer what a call of a model does from its inputs: tokens, sequences, and prefill, decode or forward."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# parameter names of token ids, and parts of the names of other integer inputs
_TOKEN_ID_NAMES: Final = ("decoder_input_ids", "input_ids", "tokens", "idx", "ids", "x")
_OTHER_INTEGER_NAMES: Final = (
    "mask", "pos", "label", "type", "cache", "target", "len", "seg", "batch", "step", "slot", "seq",
)  # fmt: skip


class InputLength(NamedTuple):
    """Sequences in the inputs of one call, and tokens per sequence."""

    batch: int
    tokens: int


class CallFacts(NamedTuple):
    """What is known of one call; None is unknown."""

    phase: str
    tokens: int | None = None
    batch: int | None = None
    context: int | None = None


def find_length(args: Iterable[Any], kwargs: Mapping[str, Any]) -> InputLength | None:
    """Return the length of the first token ids among the inputs of a call, or None."""
    for value in _iter_candidates(args, kwargs):
        length = _measure_length(value)
        if length is not None:
            return length
    return None


def find_batch(args: Iterable[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Return the first dimension of the first tensor among the inputs, or None."""
    for value in (*args, *kwargs.values()):
        shape = getattr(value, "shape", None)
        if shape is not None and len(shape) > 1 and type(shape[0]) is int:
            return int(shape[0])
    return None


def _iter_candidates(args: Iterable[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield possible token ids, the likeliest first; containers are searched one level deep."""
    for name in _TOKEN_ID_NAMES:
        if name in kwargs:
            yield kwargs[name]
    for value in args:
        if isinstance(value, (tuple, list)):
            yield from value[:4]
        elif hasattr(value, "keys") and hasattr(value, "get"):
            yield from (value.get(name) for name in _TOKEN_ID_NAMES)
        else:
            yield value
    for name, value in kwargs.items():
        if name not in _TOKEN_ID_NAMES and not any(other in name for other in _OTHER_INTEGER_NAMES):
            yield value


@lru_cache(maxsize=None)  # every step asks
def _is_integer(dtype: Any) -> bool:
    return str(dtype) in ("torch.int64", "torch.int32")


def _measure_length(value: Any) -> InputLength | None:
    """Return the length of an integer tensor with one or two dimensions, else None."""
    if not hasattr(value, "is_floating_point") or not _is_integer(value.dtype) or value.dim() not in (1, 2):
        return None
    shape = [size for size in value.shape if type(size) is int]  # sizes are symbolic while tracing
    if len(shape) != value.dim():
        return None
    return InputLength(1 if len(shape) == 1 else shape[0], shape[-1])


class PhaseTracker:
    """Infers the phases of the successive calls of one thread.

    One token per sequence is decode. So is a call with one more token than the last: a model without a cache
    reads the whole text again for each token.
    """

    def __init__(self) -> None:
        self._last: InputLength | None = None
        self._phase = "forward"
        self._context = 0

    def is_new_text(self, coming: InputLength | None) -> bool:
        """Return whether the coming call starts another text."""
        return coming is not None and coming.tokens > 1 and not _is_reread(self._last, coming, self._phase)

    def infer_facts(
        self, length: InputLength | None, coming: InputLength | None, *, generates: bool
    ) -> CallFacts:
        """Return the facts of a call; `generates` if the model is known to produce tokens."""
        if length is None:
            self._last, self._phase = None, "forward"
            return CallFacts("forward")
        if length.tokens == 1 or _is_reread(self._last, length, self._phase):
            self._phase = "decode"
        elif generates or (coming is not None and (coming.tokens == 1 or _is_one_longer(length, coming))):
            self._phase = "prefill"
        else:
            self._phase = "forward"
        self._last = length
        if self._phase == "forward":
            return CallFacts("forward", batch=length.batch)
        cached = self._phase == "decode" and length.tokens == 1
        self._context = self._context + 1 if cached else length.tokens
        return CallFacts(self._phase, length.batch, length.batch, self._context)


def _is_one_longer(last: InputLength, length: InputLength) -> bool:
    return length.batch == last.batch and length.tokens == last.tokens + 1


def _is_reread(last: InputLength | None, length: InputLength, phase: str) -> bool:
    """Return whether a call without a cache reads the last text again, one token longer.

    A text that fills the model's window stops growing.
    """
    if last is None or phase == "forward" or length.tokens == 1:
        return False
    return _is_one_longer(last, length) or (phase == "decode" and last.tokens > 1 and last == length)
