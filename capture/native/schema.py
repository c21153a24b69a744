"""The schema of events, one for every source, and the checksum of native lines."""

from __future__ import annotations  # imported by users' programs, from Python 3.8 on

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

SCHEMA_VERSION: Final = 1

Kind = Literal["step", "span", "kernel", "counter", "memory", "mark"]
Lens = Literal["gpu", "wall", "wait", "host"]
Category = Literal[
    "matmul", "attention", "norm", "elementwise", "softmax", "reduce", "conv", "moe", "ssm",
    "sampling", "quantize", "copy", "comm", "wait", "host", "other",
]  # fmt: skip

KINDS: Final[tuple[str, ...]] = get_args(Kind)
LENSES: Final[tuple[str, ...]] = get_args(Lens)
CATEGORIES: Final[tuple[str, ...]] = get_args(Category)
PHASES: Final = ("prefill", "decode", "mixed", "forward", "backward", "optimizer", "load")


class EventColumn(NamedTuple):
    """One column of the event frame."""

    name: str
    type: str  # cat · i64 · i32 · f64
    meaning: str


COLUMNS: Final = (
    EventColumn("kind", "cat", "step, span, kernel, counter, memory or mark"),
    EventColumn("name", "cat", "as the source wrote it, without control characters, never shortened"),
    EventColumn("t", "i64", "start in ns on the run's clock; null: not on the timeline"),
    EventColumn("dur", "i64", "duration in ns; of an aggregate row the total"),
    EventColumn("count", "i64", "launches that this row represents"),
    EventColumn("step", "i64", "decode step, cycle or iteration"),
    EventColumn("phase", "cat", "prefill, decode, mixed, forward, backward, optimizer, load …"),
    EventColumn("layer", "i32", "transformer layer"),
    EventColumn("op", "cat", "role: attn.qkv, attn.core, mlp.down, lm_head, sample …"),
    EventColumn("category", "cat",
                "matmul, attention, norm, elementwise, softmax, reduce, copy, moe, comm …"),
    EventColumn("lens", "cat",
                "clock that measured the row: gpu, wall, wait or host; lenses are never added"),
    EventColumn("track", "cat", "device, stream, thread or rank"),
    EventColumn("path", "cat", "scope path, joined by ' / '"),
    EventColumn("shape", "cat", "operand shapes, as 'm=1 n=4864 k=896'; of a step its input: '8x3x224x224'"),
    EventColumn("dtype", "cat", "number format in which the row multiplies, as bf16 or fp8"),
    EventColumn("launch", "i64", "start in ns of the host call that launched the row, on the clock of t"),
    EventColumn("launch_dur", "i64", "duration in ns of the launching call"),
    EventColumn("launcher", "cat", "track of the host thread that launched the row"),
    EventColumn("line", "cat", "function that launched the row, as 'file.py(7): name'"),
    EventColumn("grid", "cat", "blocks of the launch, as '64x8x1'"),
    EventColumn("block", "cat", "threads per block, as '256x1x1'"),
    EventColumn("registers", "i32", "registers per thread"),
    EventColumn("shared", "i32", "shared memory per block in bytes"),
    EventColumn("occupancy", "f64", "estimated achieved occupancy in per cent"),
    EventColumn("flops", "f64", "floating-point operations of the row"),
    EventColumn("bytes", "f64", "bytes read and written by the row; of memory rows the size"),
    EventColumn("min", "i64", "shortest launch in ns, only if the source reports it"),
    EventColumn("max", "i64", "longest launch in ns, likewise"),
    EventColumn("p50", "i64", "median launch in ns, likewise"),
    EventColumn("p95", "i64", "95th percentile in ns, likewise"),
    EventColumn("p99", "i64", "99th percentile in ns, likewise"),
    EventColumn("std", "i64", "standard deviation in ns, likewise"),
    EventColumn("value", "f64", "value of a counter"),
    EventColumn("unit", "cat", "the unit of value"),
    EventColumn("tokens", "i64", "tokens produced (step rows)"),
    EventColumn("context", "i64", "context length at the end (step rows)"),
    EventColumn("batch", "i64", "sequences in flight (step rows)"),
)  # fmt: skip

TIME_COLUMNS: Final = ("t", "launch")  # instants on the run's clock
PATH_SEPARATOR: Final = " / "
MAX_PATH_DEPTH: Final = 64  # scopes; a text for each of 8,000 nested ones took 2.6 GB
RECORDING_NAME: Final = "recording (tracetui)"  # of the recorder's own work, which is no work of the program
UNWATCHED_NAME: Final = "unwatched (tracetui)"  # of a model's calls in steps without rows of its modules
HOST_COLLECTIVE_PATTERN: Final = r"^(?:gloo|mpi|ucc):"  # what torch's CPU backends run in own threads
COMPILED_PATTERN: Final = "CompiledFxGraph|Torch-Compiled Region"  # ranges around compiled code of torch
PROFILE_MARK: Final = "profile"  # path of the marks at the begin and end of a profile of a server
OWN_PROFILE_MARK: Final = "own profile"  # likewise of the profiler that a recorded program itself uses
WINDOW_OP: Final = "window"  # op of a span without duration: rows of its lens were sampled in this step

_CRC: Final = b',"crc":"'
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_TEMPLATES: Final[dict[tuple[str, ...], str]] = {}
MAX_TEMPLATES: Final = 256  # a program may record any fields
encode_text: Final = json.encoder.encode_basestring_ascii
_RECORD_START: Final = b'{"kind":'
_CRC_TAIL: Final = len(_CRC) + 8 + 2  # ,"crc":"xxxxxxxx"}


def seal_record(record: Mapping[str, Any]) -> bytes:
    """Return a record as one line with its checksum."""
    return seal_json(encode_json(record).encode())


def encode_json(record: Mapping[str, Any]) -> str:
    """Return a record as JSON; numbers and text, which are most, bypass the slow encoder."""
    names = tuple(record)
    template = _TEMPLATES.get(names) or _build_template(names)
    return template % tuple([v if type(v) is int else _encode_value(v) for v in record.values()])


def _build_template(names: tuple[str, ...]) -> str:
    """Return the JSON of a record with these fields, with %s for each value, and remember it."""
    if len(_TEMPLATES) >= MAX_TEMPLATES:
        _TEMPLATES.clear()
    fields = ",".join(encode_text(name).replace("%", "%%") + ":%s" for name in names)
    return _TEMPLATES.setdefault(names, "{" + fields + "}")


def _encode_value(value: Any) -> str:
    return encode_text(value) if type(value) is str else _ENCODER.encode(value)


def seal_json(body: bytes) -> bytes:
    """Return a JSON object as one line with its checksum."""
    body = body[:-1]
    return body + _CRC + b'%08x"}\n' % zlib.crc32(body)


def is_intact(line: bytes) -> bool:
    """Return whether a line matches its checksum; True without one, as in lines written by hand."""
    line = line.rstrip()
    tail = line[-_CRC_TAIL:]
    if not tail.startswith(_CRC):
        return True
    return tail[len(_CRC) : -2] == b"%08x" % zlib.crc32(memoryview(line)[:-_CRC_TAIL])


def split_joined(line: bytes) -> list[bytes]:
    """Split a line that lacks its newline, or was torn, from the lines of other writers behind it.

    Empty unless the line ends with a sealed record that begins within it.
    """
    first, *others = line.split(_RECORD_START)
    parts = [first, *(_RECORD_START + other for other in others)]
    last = parts[-1].rstrip()
    is_sealed = len(others) > bool(not first) and last[-_CRC_TAIL:].startswith(_CRC) and is_intact(last)
    return [part for part in parts if part] if is_sealed else []
