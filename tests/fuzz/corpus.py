"""What is damaged: fixtures, hostile files, and samples beside the checkout, each cut to a small size."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from capture.loaders import find_loaders
from capture.source import HEAD_BYTES, Head
from tests import hostile, hostile_sqlite
from tests.conftest import FIXTURES, SHARED

ELEMENTS: Final = 24  # of a list that are kept
LINES: Final = 60  # of a text
LARGEST: Final = 48 << 10  # bytes of a seed
LARGEST_FILE: Final = 64 << 20  # bytes of a sample that is looked into
LINE: Final = 4000  # bytes of a line that are kept
NO_LOADER: Final = "none"
TABLES: Final = (".csv", ".tsv")


@dataclass(frozen=True)
class Seed:
    """A small input as its producer wrote it, and how it is changed."""

    name: str
    loader: str  # which claims it; NO_LOADER where none does
    kind: str  # json, lines, table, text, sqlite, parquet, protobuf, msgpack or bytes
    suffix: str
    content: bytes


def seeds(*, samples: bool) -> list[Seed]:
    """Return all seeds in an order that never changes; `samples` exist beside some checkouts only."""
    found = [*_files(FIXTURES), *_hostile()]
    if samples:
        found += [*_files(SHARED / "samples"), *_files(SHARED / "seeds")]
    return found


def by_loader(found: list[Seed]) -> dict[str, list[Seed]]:
    """Return loader → its seeds."""
    return {name: [s for s in found if s.loader == name] for name in sorted({s.loader for s in found})}


def _files(folder: Path) -> Iterator[Seed]:
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.stat().st_size > LARGEST_FILE or path.suffix in (".svg", ".py", ".safetensors"):
            continue
        if (path.parent.name, path.name) == ("fixtures", "README.md") or "hostile" in path.parts:
            continue
        yield _seed(path.relative_to(folder).as_posix(), _unpacked(path.read_bytes()))


def _hostile() -> Iterator[Seed]:
    """Yield the hostile files that are small as they are; those that are packed stay packed."""
    for case in (*hostile.JSON, *hostile.TABLES, *hostile_sqlite.DATABASES):
        if callable(case.content):
            continue
        content = case.content
        raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        if len(raw) <= LARGEST:
            yield _seed(f"hostile/{case.file}", raw)


def _unpacked(content: bytes) -> bytes:
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def _seed(name: str, content: bytes) -> Seed:
    suffix = Path(name.removesuffix(".gz")).suffix
    kind = _kind(content, name)
    try:
        small = _cut(content, kind)
    except (ValueError, RecursionError, zlib.error):
        small = content
    for candidate in (small, content):
        if len(candidate) <= LARGEST and (loader := _loader(candidate, suffix)) != NO_LOADER:
            return Seed(name, loader, kind, suffix, candidate)
    return Seed(name, NO_LOADER, kind, suffix, small[:LARGEST])


def _loader(content: bytes, suffix: str) -> str:
    claims = find_loaders(Head(content[:HEAD_BYTES], len(content) <= HEAD_BYTES), suffix)
    return claims[0].__name__.removeprefix("capture.loaders.") if claims else NO_LOADER  # type: ignore[attr-defined]


def _kind(content: bytes, name: str) -> str:
    """Return how an input is changed, by what it is."""
    marks = ((b"SQLite format 3\0", "sqlite"), (b"PAR1", "parquet"))
    for mark, kind in marks:
        if content.startswith(mark):
            return kind
    if name.endswith("_msgpack"):
        return "msgpack"
    if "trace" in Path(name).suffix or name.endswith((".pb",)):
        return "protobuf"
    if _parsed(content) is not None:
        return "json"
    first = content.lstrip().split(b"\n", 1)[0]
    if first.startswith((b"{", b"[")) and _parsed(first) is not None:
        return "lines"
    if Path(name).suffix in TABLES:
        return "table"
    return "text"


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _cut(content: bytes, kind: str) -> bytes:
    """Return a small input of the same kind."""
    match kind:
        case "json":
            return json.dumps(_few(json.loads(content))).encode("utf-8", "surrogatepass")
        case "lines" | "table" | "text" if len(content) > LARGEST or kind == "lines":
            return b"\n".join(line[:LINE] for line in content.split(b"\n")[:LINES])
    return content


def _few(value: Any) -> Any:
    """Return a document with no more than the first elements of each list."""
    if isinstance(value, list):
        return [_few(each) for each in value[:ELEMENTS]]
    if isinstance(value, dict):
        return {key: _few(each) for key, each in list(value.items())[:200]}
    return value
