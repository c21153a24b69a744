"""Changes of binary forms: protobuf by its fields, parquet by its cells, gzip by its members, or by bytes."""

import gzip
import io
import json
from random import Random
from typing import Final

import polars as pl

from tests.fuzz.hostile_values import word
from tests.fuzz.json_values import changed

VARINTS: Final = (0, 1, 127, 128, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def changed_bytes(content: bytes, draw: Random) -> bytes:
    """Return bytes with one change that knows nothing of them."""
    size = len(content)
    at = draw.randrange(size + 1)
    to = min(size, at + draw.choice((1, 1, 2, 8, 64, 1000)))
    match draw.randrange(7):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + content[to:]
        case 2:
            return content[:at] + bytes(to - at) + content[to:]
        case 3:
            return content[:at] + draw.randbytes(to - at) + content[to:]
        case 4:
            return content[:at] + content[at:to] * 2 + content[to:]
        case 5:
            flipped = bytes(b ^ (1 << draw.randrange(8)) for b in content[at : at + 1])
            return content[:at] + flipped + content[at + 1 :]
    return content[at:]


def zipped(content: bytes, draw: Random) -> bytes:
    """Return content as gzip: whole, torn, in members, flipped, within itself, or swollen by blanks."""
    packed = gzip.compress(content, 1, mtime=0)
    match draw.randrange(8):
        case 0:
            return packed[: draw.randrange(len(packed))]
        case 1:
            cut = draw.randrange(len(content) + 1)
            return gzip.compress(content[:cut], 1, mtime=0) + gzip.compress(content[cut:], 1, mtime=0)
        case 2:
            return changed_bytes(packed, draw)
        case 3:
            return gzip.compress(packed, 1, mtime=0)
        case 4:
            return packed + draw.choice((b"garbage", bytes(512), packed[:20], b"\x1f\x8b"))
        case 5:
            return gzip.compress(b"", 1, mtime=0) * draw.choice((1, 500)) + packed
        case 6:
            return gzip.compress(content + draw.choice((b" ", b"\n", b"\0")) * (1 << 22), 1, mtime=0)
    return packed


def changed_protobuf(content: bytes, draw: Random, depth: int = 0) -> bytes:
    """Return a message with one field changed, here or in a message within it; other bytes as they come."""
    fields = _fields(content)
    if not fields:
        return changed_bytes(content, draw)
    at = draw.randrange(len(fields))
    tag, kind, body = fields[at]
    inner = kind == 2 and depth < 8 and draw.random() < 0.75
    match 4 if inner else draw.randrange(4):
        case 0:
            del fields[at]
        case 1:
            fields.insert(draw.randrange(len(fields) + 1), (tag, kind, body))
        case 2:
            fields[at] = (tag, kind, _other_body(kind, body, draw))
        case 3:
            fields[at] = (draw.choice(fields)[0], kind, body)
        case _:
            fields[at] = (tag, kind, changed_protobuf(body, draw, depth + 1))
    return b"".join(
        _varint(tag << 3 | kind) + (_varint(len(body)) if kind == 2 else b"") + body
        for tag, kind, body in fields
    )


def _other_body(kind: int, body: bytes, draw: Random) -> bytes:
    if kind == 0:
        return _varint(draw.choice(VARINTS))
    if kind == 2:
        return draw.choice(
            (b"", b"\xff\xfe", word(draw).encode("utf-8", "surrogatepass"), changed_bytes(body, draw))
        )
    return draw.randbytes(len(body)) if draw.random() < 0.5 else bytes(len(body))


def _fields(content: bytes) -> list[tuple[int, int, bytes]]:
    """Return (number, wire type, body) of every field; nothing where it is no message."""
    fields, at = [], 0
    while at < len(content):
        key, at = _read_varint(content, at)
        tag, kind = key >> 3, key & 7
        if kind == 0:
            start = at
            _, at = _read_varint(content, at)
            body = content[start:at]
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            body, at = content[at : at + size], at + size
        elif kind == 2:
            size, at = _read_varint(content, at)
            body, at = content[at : at + size], at + size
        else:
            return []
        if not tag or at > len(content):
            return []
        fields.append((tag, kind, body))
    return fields


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content):
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
    return value, len(content) + 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def changed_parquet(content: bytes, draw: Random) -> bytes:
    """Return an exported run with a column, some cells or its metadata changed; else with other bytes."""
    if draw.random() < 0.3:
        return changed_bytes(content, draw)
    frame = pl.read_parquet(io.BytesIO(content))
    about = {k: v for k, v in pl.read_parquet_metadata(io.BytesIO(content)).items() if k != "ARROW:schema"}
    column = draw.choice(frame.columns)
    match draw.randrange(6):
        case 0:
            frame = frame.drop(column)
        case 1:
            frame = frame.rename({column: draw.choice(("x", "dur2", "Name"))})
        case 2:
            odd = draw.choice((None, "x", -1.5, True, 2**63 - 1))
            frame = frame.with_columns(pl.lit(odd).alias(column))
        case 3:
            kind = draw.choice((pl.String, pl.Binary, pl.Categorical))
            frame = frame.with_columns(pl.col(column).cast(pl.String).cast(kind))
        case 4:
            frame = frame.head(draw.choice((0, 1)))
        case _:
            key = draw.choice(list(about))
            about[key] = json.dumps(changed(json.loads(about[key]), draw))
    out = io.BytesIO()
    frame.write_parquet(out, metadata=about)
    return out.getvalue()
