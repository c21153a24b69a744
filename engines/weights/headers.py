"""Read the headers of safetensors; every size is checked against the file before it is believed."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from capture.errors import EngineError

HEADER_LIMIT: Final = 100 << 20
SIZES: Final = {"F16": 2, "BF16": 2, "F32": 4, "U8": 1}
# a language model that lies within a larger one, as two versions of a library write it
_WITHIN: Final = re.compile(r"^(?:model\.language_model\.|language_model\.model\.)(.+)")
_HEAD_WITHIN: Final = "language_model.lm_head."


@dataclass(frozen=True)
class Stored:
    """Where one tensor lies."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


def check(stored: Mapping[str, Stored], wanted: Mapping[str, tuple[int, ...]], folder: Path) -> None:
    """Raise EngineError unless every wanted tensor is there, in its shape."""
    for name, shape in wanted.items():
        entry = stored.get(name)
        if entry is None:
            raise EngineError(f"lacks the tensor {name}", where=str(folder))
        if entry.shape != shape:
            raise EngineError(
                f"holds {name} as {list(entry.shape)}, its config asks for {list(shape)}",
                where=str(entry.path),
            )


def read_headers(folder: Path) -> dict[str, Stored]:
    """Return where every tensor of a folder lies; those of a language model by the names they have alone."""
    stored: dict[str, Stored] = {}
    for path in shard_files(folder):
        for full_name, one in read_header(path).items():
            name = _name_alone(full_name)
            if name in stored:
                raise EngineError(f"holds {name!r} a second time", where=str(path))
            stored[name] = one
    return stored


def _name_alone(name: str) -> str:
    within = _WITHIN.match(name)
    return f"model.{within[1]}" if within else name.replace(_HEAD_WITHIN, "lm_head.", 1)


def shard_files(folder: Path) -> list[Path]:
    """Return the safetensors of a folder: those its index names, else the single file."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _indexed(index)
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    old = sorted(p.name for p in folder.glob("*") if p.suffix in (".bin", ".pt", ".pth", ".ckpt"))
    if old:
        raise EngineError(
            f"holds only {old[0]}, which can run code when it is loaded",
            where=str(folder),
            todo="convert it: https://huggingface.co/docs/safetensors/convert-weights",
        )
    raise EngineError("holds no model.safetensors", where=str(folder))


def _indexed(index: Path) -> list[Path]:
    try:
        named = json.loads(index.read_bytes()[:HEADER_LIMIT])["weight_map"].values()
        names = sorted(set(named))
        plain = all(isinstance(n, str) and Path(n).name == n and n.endswith(".safetensors") for n in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise EngineError("cannot be read", where=str(index), why=repr(e)[:200]) from None
    if not plain or not names:
        raise EngineError("names shards that are no files of its folder", where=str(index))
    return [index.parent / name for name in names]


def read_header(path: Path) -> dict[str, Stored]:
    """Return where the tensors of one file lie. Raise EngineError unless the file has exactly their bytes."""
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if not 2 <= length <= min(HEADER_LIMIT, size - 8):
                raise ValueError("its header has an impossible length")
            header = json.loads(f.read(length), object_pairs_hook=_no_duplicates)
        if not isinstance(header, dict):
            raise ValueError("its header is no table")
        header.pop("__metadata__", None)
        stored = {name: _stored(path, entry, 8 + length) for name, entry in header.items()}
        _check_layout(list(stored.values()), 8 + length, size)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise EngineError("is no whole safetensors file", where=str(path), why=str(e)[:200]) from None
    return stored


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands twice in its header")
    return table


def _stored(path: Path, entry: Mapping[str, Any], base: int) -> Stored:
    if entry["dtype"] not in SIZES:
        raise ValueError(f"{entry['dtype']} tensors are not read here")
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    start, end = entry["data_offsets"]
    size = SIZES[dtype]
    for n in shape:
        if type(n) is not int or n < 0:
            raise ValueError("a shape is no list of sizes")
        size *= n
    if type(start) is not int or type(end) is not int or end - start != size:
        raise ValueError("a shape and its bytes disagree")
    return Stored(path, dtype, shape, base + start, size)


def _check_layout(stored: list[Stored], base: int, size: int) -> None:
    """Raise ValueError unless the tensors lie one after the other and fill the file to its last byte."""
    at = base
    for s in sorted(stored, key=lambda s: (s.start, s.size)):
        if s.start != at:
            raise ValueError("its tensors overlap or leave a gap")
        at += s.size
    if at != size:
        raise ValueError(f"it has {size:,} bytes where its header asks for {at:,}")
