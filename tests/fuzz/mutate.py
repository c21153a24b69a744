"""One damaged input from a seed: which changes, how many, and in which wrapping."""

import csv
import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from tests.fuzz.binaries import changed_bytes, changed_parquet, changed_protobuf, zipped
from tests.fuzz.corpus import Seed
from tests.fuzz.databases import changed_database
from tests.fuzz.hostile_values import cell
from tests.fuzz.json_values import changed, written
from tests.fuzz.tables import changed_table, changed_text

MOST: Final = 6  # changes of one input
_BROKEN: Final = (RecursionError, OverflowError, ValueError, TypeError, csv.Error)


def damaged(seed: Seed, friends: Sequence[Seed], draw: Random) -> bytes:
    """Return the seed with some changes; pieces may come from others of the same loader."""
    other = draw.choice(friends)
    content = seed.content
    count = min(MOST, 1 + int(draw.expovariate(0.7)))
    try:
        content = _changed(seed, other, count, draw)
    except _BROKEN:  # what came out cannot be written in this form
        content = changed_bytes(content, draw)
    if draw.random() < 0.04:
        content = changed_bytes(content, draw)
    if draw.random() < 0.01:
        content = content.decode("utf-8", "replace").encode(draw.choice(("utf-16", "utf-8-sig", "utf-16-be")))
    return zipped(content, draw) if draw.random() < 0.04 else content


def _changed(seed: Seed, other: Seed, count: int, draw: Random) -> bytes:
    match seed.kind:
        case "json":
            value, donor = json.loads(seed.content), _document(other)
            for _ in range(count):
                value = changed(value, draw, donor)
            return written(value, draw)
        case "lines":
            return _lines(seed.content, count, draw)
        case "msgpack":
            value = msgspec.msgpack.decode(seed.content)
            for _ in range(count):
                value = changed(value, draw)
            return msgspec.msgpack.encode(value)
    return _plain(seed, other, count, draw)


def _plain(seed: Seed, other: Seed, count: int, draw: Random) -> bytes:
    """Return the seed with changes that are made one after the other to its bytes or its text."""
    content = seed.content
    binary = {"sqlite": changed_database, "parquet": changed_parquet, "protobuf": changed_protobuf}
    if seed.kind in binary:
        for _ in range(1 if seed.kind == "parquet" else count):
            content = binary[seed.kind](content, draw)
        return content
    text = content.decode("utf-8", "surrogateescape")
    theirs = other.content.decode("utf-8", "surrogateescape")
    change = changed_table if seed.kind == "table" else changed_text
    for _ in range(count):
        text = change(text, draw, theirs)
    return text.encode("utf-8", "surrogatepass" if "\ud800" in text else "surrogateescape")


def _document(seed: Seed) -> Any:
    return json.loads(seed.content) if seed.kind == "json" else None


def _lines(content: bytes, count: int, draw: Random) -> bytes:
    """Return lines of JSON with records changed, swapped, repeated, torn, joined, or gone."""
    lines = [line for line in content.split(b"\n") if line]
    for _ in range(count):
        if not lines:
            break
        at, to = draw.randrange(len(lines)), draw.randrange(len(lines))
        at = 0 if draw.random() < 0.15 else at
        match draw.randrange(12):
            case 0:
                del lines[at]
            case 1:
                lines.insert(to, lines[at])
            case 2:
                lines[at], lines[to] = lines[to], lines[at]
            case 3:
                lines[at] = changed_bytes(lines[at], draw)
            case 4:
                lines[at : at + 2] = [b"".join(lines[at : at + 2])]
            case 5:
                lines.insert(to, cell(draw).encode("utf-8", "surrogatepass"))
            case _:
                lines[at] = _record(lines[at], draw)
    ends = b"\n" if draw.random() < 0.95 else b"\r\n"
    return ends.join([*lines, b""] if draw.random() < 0.9 else lines)


def _record(line: bytes, draw: Random) -> bytes:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return changed_bytes(line, draw)
    return written(changed(value, draw), draw).replace(b"\n", b" ")
