"""How many tokens of how many sequences a call takes, counted from the token numbers among its inputs."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# what models call their token numbers, and the beginnings and ends of what whole numbers are called besides
_IDS: Final = ("decoder_input_ids", "input_ids", "tokens", "idx", "ids", "x")
_OTHERS: Final = (
    "mask",
    "pos",
    "label",
    "type",
    "cache",
    "target",
    "len",
    "seg",
    "batch",
    "step",
    "slot",
    "seq",
)


_WHOLE: dict[Any, bool] = {}  # of types of numbers, which are few


class Length(NamedTuple):
    """What one call takes: so many sequences, of each so many tokens."""

    batch: int
    tokens: int


def find_length(args: Iterable[Any], kwargs: Mapping[str, Any]) -> Length | None:
    """Return the length of the first token numbers among the inputs of a call; None where there are none."""
    for value in _candidates(args, kwargs):
        length = _length(value)
        if length is not None:
            return length
    return None


def first_batch(args: Iterable[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Return the first dimension of the first tensor among the inputs; None where there is none."""
    for value in (*args, *kwargs.values()):
        shape = getattr(value, "shape", None)
        if shape is not None and len(shape) > 1 and type(shape[0]) is int:
            return int(shape[0])
    return None


def _candidates(args: Iterable[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what may be token numbers, the likeliest first; containers are looked into once."""
    for name in _IDS:
        if name in kwargs:
            yield kwargs[name]
    for value in args:
        if isinstance(value, (tuple, list)):
            yield from value[:4]
        elif hasattr(value, "keys") and hasattr(value, "get"):
            yield from (value.get(name) for name in _IDS)
        else:
            yield value
    for name, value in kwargs.items():
        if name not in _IDS and not any(other in name for other in _OTHERS):
            yield value


def _is_whole(dtype: Any) -> bool:
    """Return whether a type of numbers is that of token numbers; asked for in every step, so kept."""
    answer = _WHOLE.get(dtype)
    if answer is None:
        answer = _WHOLE[dtype] = str(dtype) in ("torch.int64", "torch.int32")
    return answer


def _length(value: Any) -> Length | None:
    """Return the length of a tensor of whole numbers in one dimension or two; None for anything else."""
    if not hasattr(value, "is_floating_point") or not _is_whole(value.dtype) or value.dim() not in (1, 2):
        return None
    shape = [size for size in value.shape if type(size) is int]  # while tracing, sizes may be symbols
    if len(shape) != value.dim():
        return None
    return Length(1 if len(shape) == 1 else shape[0], shape[-1])
