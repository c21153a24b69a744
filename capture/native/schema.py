"""The schema of events, one for every source, and the checksum of a native line."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

SCHEMA: Final = 1

Kind = Literal["step", "span", "kernel", "counter", "memory", "mark"]
Lens = Literal["gpu", "wall", "wait", "host"]
Category = Literal[
    "matmul",
    "attention",
    "norm",
    "elementwise",
    "softmax",
    "reduce",
    "conv",
    "moe",
    "ssm",
    "sampling",
    "quantize",
    "copy",
    "comm",
    "wait",
    "host",
    "other",
]

KINDS: Final[tuple[str, ...]] = get_args(Kind)
LENSES: Final[tuple[str, ...]] = get_args(Lens)
CATEGORIES: Final[tuple[str, ...]] = get_args(Category)
PHASES: Final = ("prefill", "decode", "mixed", "forward", "backward", "optimizer", "load")


class Column(NamedTuple):
    """One column of the event frame."""

    name: str
    type: str  # cat · i64 · i32 · f64
    meaning: str


COLUMNS: Final = (
    Column("kind", "cat", "step, span, kernel, counter, memory or mark"),
    Column("name", "cat", "as the source wrote it, cleaned of control bytes, never shortened"),
    Column("t", "i64", "start in ns on the run's own clock; null: not on a timeline"),
    Column("dur", "i64", "duration in ns; for an aggregate row the total"),
    Column("count", "i64", "launches this row stands for"),
    Column("step", "i64", "decode step, cycle or iteration"),
    Column("phase", "cat", "prefill, decode, mixed, forward, backward, optimizer, load …"),
    Column("layer", "i32", "transformer layer"),
    Column("op", "cat", "role: attn.qkv, attn.core, mlp.down, lm_head, sample …"),
    Column("category", "cat", "matmul, attention, norm, elementwise, softmax, reduce, copy, moe, comm …"),
    Column("lens", "cat", "which stopwatch: gpu, wall, wait or host; lenses are never added up"),
    Column("track", "cat", "device, stream, thread or rank"),
    Column("path", "cat", "scope path, parts joined by ' / '"),
    Column("shape", "cat", "operand shapes, as 'm=1 n=4864 k=896'"),
    Column("launch", "i64", "start in ns of the host call that launched the row, on the clock of t"),
    Column("launch_dur", "i64", "duration in ns of that call"),
    Column("launcher", "cat", "track of the host thread that made that call"),
    Column("line", "cat", "the function of a program that launched the row, as 'file.py(7): name'"),
    Column("grid", "cat", "blocks of the launch, as '64x8x1'"),
    Column("block", "cat", "threads of a block, as '256x1x1'"),
    Column("registers", "i32", "registers of a thread"),
    Column("shared", "i32", "shared memory of a block in bytes"),
    Column("occupancy", "f64", "estimated achieved occupancy in per cent"),
    Column("flops", "f64", "floating-point operations of the row"),
    Column("bytes", "f64", "bytes read and written by the row; for memory rows the size"),
    Column("min", "i64", "shortest instance in ns, only where the source printed it"),
    Column("max", "i64", "longest instance in ns, likewise"),
    Column("p50", "i64", "median instance in ns, likewise"),
    Column("p95", "i64", "95th percentile in ns, likewise"),
    Column("p99", "i64", "99th percentile in ns, likewise"),
    Column("std", "i64", "standard deviation in ns, likewise"),
    Column("value", "f64", "a counter's value"),
    Column("unit", "cat", "the unit of value"),
    Column("tokens", "i64", "of a step row: tokens it produced"),
    Column("context", "i64", "of a step row: context length at its end"),
    Column("batch", "i64", "of a step row: sequences in flight"),
)

TIMES: Final = ("t", "launch")  # columns that hold a moment on the run's clock
PATH_SEPARATOR: Final = " / "
WINDOW: Final = "window"  # op of a span without a duration: this step holds single rows of its lens

_CRC: Final = b',"crc":"'
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_text: Final = json.encoder.encode_basestring_ascii
_CRC_TAIL: Final = len(_CRC) + 8 + 2  # ,"crc":"xxxxxxxx"}


def seal(record: Mapping[str, Any]) -> bytes:
    """Return a record as one line that carries the checksum of its own bytes."""
    return sealed(flat_json(record).encode())


def flat_json(record: Mapping[str, Any]) -> str:
    """Return a record as JSON: numbers and text, which most are, without the way round by the encoder."""
    return "{" + ",".join([f"{_text(name)}:{_value(value)}" for name, value in record.items()]) + "}"


def _value(value: Any) -> str:
    kind = type(value)
    if kind is int:
        return int.__repr__(value)
    return _text(value) if kind is str else _ENCODER.encode(value)


def sealed(body: bytes) -> bytes:
    """Return a JSON object as one line with its checksum."""
    body = body[:-1]
    return body + _CRC + b'%08x"}\n' % zlib.crc32(body)


def intact(line: bytes) -> bool:
    """Return whether a line's checksum holds; True for a line without one, as written by hand."""
    line = line.rstrip()
    tail = line[-_CRC_TAIL:]
    if not tail.startswith(_CRC):
        return True
    return tail[len(_CRC) : -2] == b"%08x" % zlib.crc32(memoryview(line)[:-_CRC_TAIL])
