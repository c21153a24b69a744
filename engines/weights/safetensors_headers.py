"""Read the headers of safetensors files; every size is checked against the file before it is used."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture.errors import EngineError

HEADER_LIMIT: Final = 100 << 20
DTYPE_BYTES: Final = {"F16": 2, "BF16": 2, "F32": 4, "U8": 1}
# a language model that lies within a larger one, as two versions of a library write it
_NESTED_NAME: Final = re.compile(r"^(?:model\.language_model\.|language_model\.model\.)(.+)")
_NESTED_HEAD: Final = "language_model.lm_head."


class SafetensorsEntry(NamedTuple):
    """Location of one tensor: file, dtype, shape, and bytes."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


def check_tensors(
    entries: Mapping[str, SafetensorsEntry], shapes: Mapping[str, tuple[int, ...]], folder: Path
) -> None:
    """Raise EngineError unless every tensor of `shapes` exists in its shape."""
    for name, shape in shapes.items():
        entry = entries.get(name)
        if entry is None:
            raise EngineError(f"tensor {name} is missing", where=str(folder))
        if entry.shape != shape:
            message = f"tensor {name} has shape {list(entry.shape)}, its config requires {list(shape)}"
            raise EngineError(message, where=str(entry.path))


def read_headers(folder: Path) -> dict[str, SafetensorsEntry]:
    """Map tensor names to locations for a folder; names of a nested language model lose their prefix."""
    entries: dict[str, SafetensorsEntry] = {}
    for path in list_shard_files(folder):
        for full_name, entry in read_safetensors_header(path).items():
            name = _strip_nesting(full_name)
            if name in entries:
                raise EngineError(f"tensor {name!r} occurs twice", where=str(path))
            entries[name] = entry
    return entries


def _strip_nesting(name: str) -> str:
    nested = _NESTED_NAME.match(name)
    return f"model.{nested[1]}" if nested else name.replace(_NESTED_HEAD, "lm_head.", 1)


def list_shard_files(folder: Path) -> list[Path]:
    """List the safetensors of a folder: those of its index, or the single file."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _list_indexed_files(index)
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    pickled = sorted(p.name for p in folder.glob("*") if p.suffix in (".bin", ".pt", ".pth", ".ckpt"))
    if pickled:
        message = f"contains only {pickled[0]}, which can run code when loaded"
        todo = "convert it: https://huggingface.co/docs/safetensors/convert-weights"
        raise EngineError(message, where=str(folder), todo=todo)
    raise EngineError("contains no model.safetensors", where=str(folder))


def _list_indexed_files(index: Path) -> list[Path]:
    try:
        paths = json.loads(index.read_bytes()[:HEADER_LIMIT])["weight_map"].values()
        names = sorted(set(paths))
        is_safe = all(isinstance(n, str) and Path(n).name == n and n.endswith(".safetensors") for n in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise EngineError("cannot be read", where=str(index), why=repr(e)[:200]) from None
    if not is_safe or not names:
        raise EngineError("lists shards that are not files of its folder", where=str(index))
    return [index.parent / name for name in names]


def read_safetensors_header(path: Path) -> dict[str, SafetensorsEntry]:
    """Map tensor names to locations in one file. Raise EngineError unless sizes add up to the file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if not 2 <= length <= min(HEADER_LIMIT, size - 8):
                raise ValueError("invalid header length")
            header = json.loads(f.read(length), object_pairs_hook=_build_unique_table)
        if not isinstance(header, dict):
            raise ValueError("the header is not an object")
        header.pop("__metadata__", None)
        entries = {name: _parse_entry(path, entry, 8 + length) for name, entry in header.items()}
        _check_layout(list(entries.values()), 8 + length, size)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise EngineError("not a complete safetensors file", where=str(path), why=str(e)[:200]) from None
    return entries


def _build_unique_table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice in the header")
    return table


def _parse_entry(path: Path, entry: Mapping[str, Any], base: int) -> SafetensorsEntry:
    if entry["dtype"] not in DTYPE_BYTES:
        raise ValueError(f"{entry['dtype']} tensors are not supported")
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("invalid shape")
    size = DTYPE_BYTES[dtype] * math.prod(shape)
    if type(start) is not int or type(end) is not int or end - start != size:
        raise ValueError("a shape does not match its bytes")
    return SafetensorsEntry(path, dtype, shape, base + start, size)


def _check_layout(entries: list[SafetensorsEntry], base: int, size: int) -> None:
    """Raise ValueError unless the tensors are consecutive and fill the file."""
    position = base
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.size)):
        if entry.start != position:
            raise ValueError("tensors overlap or leave a gap")
        position += entry.size
    if position != size:
        raise ValueError(f"the file has {size:,} bytes, its header requires {position:,}")
