"""XLA's profiles (`*.xplane.pb`): JAX, TensorFlow and PyTorch/XLA, on GPUs, TPUs and hosts.

Read: planes of devices and hosts, their lines and events, with the launch, the name scope and the resources
that the statistics of an event state; steps. Not read: the programs (HLO) in the plane of metadata, events
that are sums of others, and counters of a chip.
The format: xplane.proto in https://github.com/openxla/xla (third_party/tsl/tsl/profiler/protobuf)
"""

import contextlib
from typing import Any, Final

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders._protobuf import BYTES, VARINT, WireError, records, text, varint
from capture.loaders.chrome.rows import to_run
from capture.loaders.chrome.tables import Trace
from capture.loaders.xplane.planes import Events, take_plane
from capture.run import Run
from capture.source import Head, Source
from capture.text import clean

FORMAT: Final = "xplane"
PRODUCER: Final = "XLA's profiler: JAX, TensorFlow, PyTorch/XLA"
HOWTO: Final = "with jax.profiler.trace('folder'): …, which writes *.xplane.pb"

_PLANE: Final = 1  # fields of the whole
_SAID: Final = {2: "error", 3: "warning"}
_KINDS: Final = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES, 6: BYTES}  # fields of a plane
_NAME: Final = 2
_FIRST_NAMES: Final = ("/host:", "/device:", "Task Environment", "#Chip")
_EPOCH: Final = 10**17  # ns; what is later counts from 1970


def sniff(head: Head) -> bool:
    """Return whether the first message is a plane: it states its name before what is large."""
    raw = head.raw
    if raw[:1] != bytes([_PLANE << 3 | BYTES]):
        return False
    with contextlib.suppress(WireError, IndexError):
        _, at = varint(raw, 1)
        while (tag := raw[at]) & 7 == _KINDS.get(tag >> 3):
            size, at = varint(raw, at + 1)
            if tag >> 3 == _NAME:
                return raw[at : at + size].decode("utf-8", "replace").startswith(_FIRST_NAMES)
            if tag & 7 == BYTES:
                return False
    return False


def load(source: Source) -> list[Run]:
    events, whole = Events(), source.read()
    truncated = _take(whole, events, source.log)
    if not events.t:
        raise UnreadableError("is an xplane profile without an event that could be read", where=source.label)
    source.log.read += len(events.t)
    first = min(events.t)
    base = first if first > _EPOCH else 0
    header: dict[str, Any] = {"baseTimeNanoseconds": base} if base else {}
    producer = "JAX profiler" if any("python" in plane for plane in events.planes) else "XLA profiler"
    trace = Trace(events.complete(base), events.names, header, truncated, producer=producer)
    return [to_run(trace, source)]


def _take(whole: bytes, events: Events, log: Log) -> bool:
    """Take all planes, and return whether the file is cut."""
    at = 0
    try:
        for number, (at, plane) in enumerate(records(whole, _PLANE)):
            try:
                take_plane(plane, number, events, log)
            except WireError:
                log.note("bad_plane", "planes that break off within", at=at, severity="data_loss")
        for field, kind in _SAID.items():
            for _, said in records(whole, field):
                log.note(f"profiler_{kind}", f"the profiler's {kind}: {clean(text(said), 300)}")
    except WireError:
        log.note("cut_short", "the file ends within a plane", at=at, severity="data_loss")
        return True
    return False
