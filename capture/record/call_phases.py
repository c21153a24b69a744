"""Infer what a call of a model does from its inputs: tokens, sequences, and prefill, decode or forward."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import sys
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# parameter names of token ids, and parts of the names of other integer inputs
TOKEN_ID_NAMES: Final = ("decoder_input_ids", "input_ids", "tokens", "idx", "ids", "x")
_OTHER_INTEGER_NAMES: Final = (
    "mask", "pos", "label", "type", "cache", "target", "len", "seg", "batch", "step", "slot", "seq",
)  # fmt: skip
# inputs that say where the tokens stand, the surest first
POSITION_NAMES: Final = ("cache_position", "position_ids", "input_pos", "positions")
_MAX_POSITIONS: Final = 1 << 16  # that are read
_MAX_FRAMES: Final = 40  # between a search for beams and the model that it calls


class InputLength(NamedTuple):
    """Sequences in the inputs of one call, tokens per sequence, and what the call says of those before."""

    batch: int
    tokens: int
    past: int | None = None  # tokens per sequence that were read before
    cache: int = 0  # id of the cache that holds them
    beams: int = 1  # candidates per sequence that is produced
    is_drafted: bool = False  # whether it verifies a draft, of a model or looked up
    is_vector: bool = False  # whether its ids have one dimension: a text, or one token each of several

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the token ids."""
        return self[1:2] if self.is_vector else self[:2]

    @property
    def forward_batch(self) -> int | None:
        """The sequences, if nothing but the sizes is known; None if a vector may be one or several."""
        return None if self.is_vector else self.batch


class CallFacts(NamedTuple):
    """What is known of one call; None is unknown."""

    phase: str  # empty for a step of training, which has several
    tokens: int | None = None
    batch: int | None = None
    context: int | None = None
    shape: str | None = None  # of what a forward or training reads, as 8x3x224x224, or of a text, as 1x48


def find_length(args: Iterable[Any], kwargs: Mapping[str, Any]) -> InputLength | None:
    """Return the length of the first token ids among the inputs of a call, or None.

    Integers in one dimension after an image or the like are its timesteps or classes.
    """
    has_features = False
    for value in _iter_candidates(args, kwargs):
        length = _measure_length(value)
        if length is not None and not (has_features and value.dim() == 1):
            return length
        has_features |= length is None and hasattr(value, "is_floating_point") and value.dim() > 1
    return None


def find_sizes(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the sizes of the first tensor of several dimensions among the inputs; none without one."""
    for value in (*args, *kwargs.values()):
        shape = getattr(value, "shape", None)
        if shape is not None and len(shape) > 1 and all(type(size) is int for size in shape):
            return tuple(shape)
    return ()


def _iter_candidates(args: Iterable[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield possible token ids, the likeliest first; containers are searched one level deep."""
    for name in TOKEN_ID_NAMES:
        if name in kwargs:
            yield kwargs[name]
    for value in args:
        if isinstance(value, (tuple, list)):
            yield from value[:4]
        elif hasattr(value, "keys") and hasattr(value, "get"):
            yield from (value.get(name) for name in TOKEN_ID_NAMES)
        else:
            yield value
    for name, value in kwargs.items():
        if name not in TOKEN_ID_NAMES and not any(other in name for other in _OTHER_INTEGER_NAMES):
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
    is_vector = len(shape) == 1 and shape[0] > 1
    return InputLength(1 if len(shape) == 1 else shape[0], shape[-1], is_vector=is_vector)


def select_input(args: Any, kwargs: Any) -> tuple[str, Any]:
    """Return the name and value of the input with the tokens of a call, or its first input without a name."""
    name = next((each for each in TOKEN_ID_NAMES if each in kwargs), "")
    if args:
        return "", None if name else args[0]
    return name, kwargs.get(name)


def needs_search(args: Any, kwargs: Any) -> bool:
    """Return whether the tokens before those of a call are known from positions only, or a nameless cache."""
    has_positions = any(each in kwargs for each in POSITION_NAMES)
    is_cached = any(map(is_cache, kwargs.values()))
    return (has_positions and not is_cached) or any(map(is_cache, args))


def is_cache(value: Any) -> bool:
    """Return whether a value is a KV cache of transformers."""
    return hasattr(type(value), "get_seq_length")


def find_cache(args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the KV cache of transformers that a call gets, or None."""
    for each in (*kwargs.values(), *args):  # every step asks: no generator
        if hasattr(type(each), "get_seq_length"):
            return each
    return None


def find_past(args: Iterable[Any], kwargs: Mapping[str, Any], tokens: int) -> tuple[int | None, int]:
    """Return the tokens per sequence that a call's cache holds, or None, and its id; else by positions.

    What lies on a device is not read, because that would wait for it.
    """
    with suppress(Exception):  # a cache of the program may not be ready
        cache = find_cache(args, kwargs)
        if cache is not None:
            return _read_integer(cache.get_seq_length()), id(cache)
        for name in POSITION_NAMES:
            last = _read_integer(kwargs[name]) if name in kwargs else None
            if last is not None:
                return max(0, last + 1 - tokens), 0
    return None, 0


def _read_integer(value: Any) -> int | None:
    """Return an integer, or the largest one of a tensor on the processor, without a call of an op."""
    if type(value) is int:
        return value
    is_tensor = hasattr(value, "is_floating_point") and _is_integer(value.dtype)
    if not is_tensor or value.device.type != "cpu" or not 0 < value.numel() <= _MAX_POSITIONS:
        return None
    values = value.tolist()
    while isinstance(values, list):
        values = max(values) if not isinstance(values[0], list) else [n for each in values for n in each]
    return int(values)


class CallReader:
    """Reads the inputs of the successive calls of one thread."""

    def __init__(self) -> None:
        self.is_draft = False  # whether a model that generates runs between two steps
        self._has_drafted = self._is_drafted = False
        self._beams = 1  # of the text that is being produced
        self._embedded: InputLength | None = None  # what the program turned into vectors itself

    def note_call(self, module: Any, args: Iterable[Any], *, is_step: bool) -> None:
        """Note a call that is in no other one, of the step module or of another."""
        if hasattr(module, "num_embeddings"):
            self._embedded = find_length(args, {})
        self.is_draft = not is_step and hasattr(type(module), "generate")
        if is_step:
            self._is_drafted, self._has_drafted = self._has_drafted, False
        else:
            self._has_drafted |= self.is_draft

    def read_length(
        self, args: Iterable[Any], kwargs: Mapping[str, Any], *, generates: bool
    ) -> InputLength | None:
        """Return the length of the token ids of a step, with what else the call says of it; else None."""
        length = find_length(args, kwargs) or self._find_embedded(args, kwargs)
        if length is None:
            return None
        past, cache = find_past(args, kwargs, length.tokens)
        if not past or length.batch == 1:
            self._beams = count_beams() if generates and length.batch > 1 else 1
        is_drafted = bool(past) and (self._is_drafted or (length.tokens > 1 and generates and is_assisted()))
        return length._replace(past=past, cache=cache, beams=self._beams, is_drafted=is_drafted)

    def _find_embedded(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> InputLength | None:
        """Return the length of the token ids whose vectors are among the inputs of a call, or None."""
        length, self._embedded = self._embedded, None
        for value in (*args, *kwargs.values()) if length is not None else ():
            shape = getattr(value, "shape", ())
            if len(shape) == 3 and length is not None and tuple(shape[:2]) == length[:2]:
                return length
        return None


def count_beams() -> int:
    """Return the beams of the search of transformers that this thread is in; 1 outside of one."""
    frame = _find_generation("_beam_search")
    beams = None if frame is None else getattr(frame.f_locals.get("generation_config"), "num_beams", None)
    return beams if type(beams) is int and beams > 0 else 1


def is_assisted() -> bool:
    """Return whether this thread verifies drafts of transformers, which may be looked up in the prompt."""
    return _find_generation("_assisted_decoding") is not None


def _find_generation(function: str) -> Any:
    """Return the frame of this thread that runs a function of transformers' generation, or None."""
    frame: Any = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == function and "generation" in frame.f_code.co_filename:
            return frame
        frame = frame.f_back
    return None


class PhaseTracker:
    """Infers the phases of the successive calls of one thread.

    One token per sequence is decode. So is a call with one more token than the last: a model without a cache
    reads the whole text again for each token. Several tokens after others are part of a prompt, or verify a
    draft, if another model was called before, or if the cache keeps fewer of them.
    """

    def __init__(self) -> None:
        self._last: InputLength | None = None
        self._phase = "forward"
        self._is_cached = False  # whether the last call took one token after those of its text
        self._context = 0
        self._verified = 0  # id of the cache from which drafts that were refused were removed

    def is_new_text(self, coming: InputLength | None) -> bool:
        """Return whether the coming call starts another text."""
        is_long = coming is not None and coming.tokens > 1 and not coming.past
        return is_long and not self._is_reread(coming)

    def infer_facts(
        self, length: InputLength | None, coming: InputLength | None, *, generates: bool
    ) -> CallFacts:
        """Return the facts of a call; `generates` if the model is known to produce tokens."""
        if length is None:
            self._last, self._phase, self._is_cached = None, "forward", False
            return CallFacts("forward")
        if self._is_cached and length.tokens == 1 and length.past is None:  # most steps, read at once
            self._last, self._context = length, self._context + 1
            return CallFacts("decode", length.batch // length.beams, length.batch, self._context)
        return self._infer_facts_from_next(length, coming, generates=generates)

    def _infer_facts_from_next(
        self, length: InputLength, coming: InputLength | None, *, generates: bool
    ) -> CallFacts:
        accepted = _count_accepted(length, coming)
        if accepted is not None and accepted < length.tokens:
            self._verified = length.cache
        is_cached = length.tokens == 1 and self._is_within_text()
        self._phase = self._find_phase(length, coming, generates=generates)
        self._last, self._is_cached = length, is_cached
        if self._phase == "forward":
            return CallFacts("forward", batch=length.forward_batch)
        if self._phase == "verify":
            return CallFacts("verify", accepted, length.batch, (length.past or 0) + length.tokens)
        cached = self._phase == "decode" and length.tokens == 1
        self._context = self._context + 1 if cached else length.tokens
        if length.past is not None:
            self._context = length.past + length.tokens
        return CallFacts(self._phase, length.batch // length.beams, length.batch, self._context)

    def _find_phase(self, length: InputLength, coming: InputLength | None, *, generates: bool) -> str:
        if length.tokens == 1 or self._is_reread(length):
            return "decode"
        if length.past and (length.is_drafted or (length.cache and self._verified == length.cache)):
            return "verify"
        if generates or (coming is not None and (coming.tokens == 1 or _is_one_longer(length, coming))):
            return "prefill"
        return "forward"

    def _is_within_text(self) -> bool:
        """Return whether the last call read a text, or one token of it, that a cache may hold."""
        return self._last is not None and (self._last.tokens == 1 or self._phase == "prefill")

    def _is_reread(self, length: InputLength | None) -> bool:
        """Return whether a call without a cache reads the last text again, one token longer.

        A text that fills the model's window stops growing.
        """
        last = self._last
        if last is None or length is None or self._phase == "forward" or length.tokens == 1 or length.cache:
            return False
        is_full = self._phase == "decode" and last.tokens > 1 and last[:2] == length[:2]
        return is_full or (_is_one_longer(last, length) and not self._is_cached)


def _count_accepted(length: InputLength, coming: InputLength | None) -> int | None:
    """Count the tokens of a call that its cache holds at the next one; None if that has another cache."""
    if coming is None or not length.cache or coming.cache != length.cache:
        return None
    if length.past is None or coming.past is None or coming.past < length.past:
        return None
    return coming.past - length.past


def _is_one_longer(last: InputLength, length: InputLength) -> bool:
    return length.batch == last.batch and length.tokens == last.tokens + 1
