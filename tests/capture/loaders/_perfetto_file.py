"""Perfetto traces in the layouts of four writers, made field by field from the published schema.

`python -m tests.capture.loaders._perfetto_file` writes them as the fixtures of the format.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.capture.loaders._wire import message
from tests.conftest import FIXTURES

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
CLEARED, NEEDS = 1, 2
EPOCH: Final = 1_750_000_000_000_000_000
BOOT: Final = 5_000_000_000
KEYS: Final = {"corr_id": 1, "workgroup_size": 2, "grid_size": 3, "copy_bytes": 4}


def trace(*packets: bytes) -> bytes:
    return message(*((1, packet) for packet in packets))


def named(iid: int, name: str) -> bytes:
    return message((1, iid), (2, name))


def note(key: str, value: Any) -> bytes:
    """Return a debug annotation under a name that is not interned."""
    kinds = {bool: 2, int: 4, float: 5, str: 6}
    return message((10, key), (kinds[type(value)], value))


def slices(uuid: int, spans: Sequence[tuple[int, int, str, str]], sequence: int = 1) -> list[bytes]:
    """Begin and end of each (start, end, category, name), without any interning."""
    out = []
    for start, end, category, name in spans:
        begin = message((9, BEGIN), (11, uuid), (22, category), (23, name))
        out.append(message((8, start), (11, begin), (10, sequence)))
        out.append(message((8, end), (11, message((9, END), (11, uuid))), (10, sequence)))
    return out


def rocprofv3() -> bytes:
    """The layout of the Perfetto SDK: interned names, a clock that counts on from packet to packet.

    A marker `decode step 1` around two launches, two kernels on a stream, one copy to the host.
    """
    process = message((1, 10), (3, message((1, 4242), (6, "python"))))
    main = message((1, 11), (5, 10), (4, message((1, 4242), (2, 4242), (5, "main"))))
    stream = message((1, 12), (5, 10), (2, "COMPUTE AGENT [4] STREAM [1] (GPU)"))
    copies = message((1, 13), (5, 10), (2, "COPY to AGENT [0] STREAM [1] (CPU)"))
    memory = message((1, 14), (5, 10), (10, "COPY BYTES to [4]"), (8, message((3, 3))))
    clocks = message(
        (1, message((1, 6), (2, BOOT))),
        (1, message((1, 64), (2, BOOT), (3, 1))),
        (2, 6),
    )
    wall = message((1, message((1, 6), (2, BOOT))), (1, message((1, 1), (2, EPOCH))), (2, 6))
    defaults = message((58, 64), (11, message((11, 11))))
    categories = {"marker_api": 1, "hip_api": 2, "kernel_dispatch": 3, "memory_copy": 4}
    names = {
        "decode step 1": 1, "hipLaunchKernel": 2, "hipMemcpyAsync": 3,
        "Cijk_Alik_Bljk_BBS_BH_MT256x32x64": 4, "paged_attention_kernel": 5,
        "MEMORY_COPY_DEVICE_TO_HOST": 6,
    }  # fmt: skip
    interned = message(
        *((1, named(iid, name)) for name, iid in categories.items()),
        *((2, named(iid, name)) for name, iid in names.items()),
        *((3, named(iid, name)) for name, iid in KEYS.items()),
    )

    def begin(after: int, category: str, name: str, track: int | None = None, **noted: int) -> bytes:
        notes = [(4, message((1, KEYS[key]), (3, value))) for key, value in noted.items()]
        where = [] if track is None else [(11, track)]
        event = message((3, categories[category]), *notes, (9, BEGIN), (10, names[name]), *where)
        return message((8, after), (11, event), (10, 7), (13, NEEDS))

    def end(after: int, track: int | None = None) -> bytes:
        where = [] if track is None else [(11, track)]
        return message((8, after), (11, message((9, END), *where)), (10, 7), (13, NEEDS))

    kernel = {"corr_id": 1, "workgroup_size": 256, "grid_size": 2048}
    return trace(
        message((6, wall), (10, 1)),
        message(
            (10, 7), (13, CLEARED), (41, 1), (42, 1), (87, 1), (6, clocks), (59, defaults), (12, interned)
        ),
        *(message((10, 7), (60, track)) for track in (process, main, stream, copies, memory)),
        begin(1_000, "marker_api", "decode step 1"),
        begin(500, "hip_api", "hipLaunchKernel", corr_id=1),
        end(200),
        begin(300, "hip_api", "hipLaunchKernel", corr_id=2),
        end(200),
        begin(100, "hip_api", "hipMemcpyAsync", corr_id=3),
        end(400),
        end(7_300),
        message((8, 0), (11, message((9, COUNTER), (11, 14), (30, 4096))), (10, 7), (13, NEEDS)),
        *_on_device(12, BOOT + 4_000, BOOT + 9_000, 3, 4, kernel),
        *_on_device(12, BOOT + 9_100, BOOT + 9_600, 3, 5, {"corr_id": 2}),
        *_on_device(13, BOOT + 9_700, BOOT + 9_900, 4, 6, {"corr_id": 3, "copy_bytes": 4096}),
    )  # fmt: skip


def _on_device(track: int, start: int, stop: int, cat: int, name: int, noted: dict[str, int]) -> list[bytes]:
    """A slice with times of the system's clock, written once the recording is over, as rocprofv3 does."""
    notes = [(4, message((1, KEYS[key]), (3, value))) for key, value in noted.items()]
    begin = message((3, cat), *notes, (9, BEGIN), (10, name), (11, track))
    return [
        message((8, start), (58, 6), (11, begin), (10, 7), (13, NEEDS)),
        message((8, stop), (58, 6), (11, message((9, END), (11, track))), (10, 7), (13, NEEDS)),
    ]


def proton() -> bytes:
    """The layout of Proton's trace: a track a thread and a stream, strings interned packet by packet."""
    values = {"ROOT": 1, "prefill": 2}
    first, second = (1 << 32) + 7, (1 << 32) + 9

    def packet(stamp: int, event: bytes) -> bytes:
        return message((8, stamp), (11, event), (10, 1), (13, NEEDS))

    def interning(*entries: tuple[int, bytes], flags: int = NEEDS) -> bytes:
        return message((12, message(*entries)), (10, 1), (13, flags))

    def span(
        track: int, start: int, stop: int, name: int, cat: int, *flow: tuple[int, int], stack: str = ""
    ) -> list[bytes]:
        notes = [(4, message((1, i), (17, values[s]))) for i, s in enumerate(stack.split(), start=1)]
        begin = message((9, BEGIN), (11, track), (10, name), (3, cat), *notes, *flow)
        return [packet(start, begin), packet(stop, message((9, END), (11, track), (10, name)))]

    tracks = [(1000, "CPU Thread 0"), (201007, "GPU Stream 7")]
    return trace(
        message((60, message((1, 1), (2, "Trace"), (3, message((1, 0), (6, "Trace"))), (11, 3)))),
        *(message((60, message((1, u), (2, n), (5, 1), (12, i)))) for i, (u, n) in enumerate(tracks)),
        interning(
            (1, named(1, "scope")), (2, named(1, "prefill")), (2, named(4, "launch")), flags=NEEDS | CLEARED
        ),
        *span(1000, 0, 900, 1, 1),
        *span(1000, 100, 200, 4, 1, (36, first)),
        *span(1000, 300, 400, 4, 1, (36, second)),
        interning(
            (1, named(2, "kernel")), (2, named(2, "matmul_kernel")), (3, named(1, "call_stack_0")),
            (3, named(2, "call_stack_1")), (29, named(1, "ROOT")), (29, named(2, "prefill")),
        ),
        *span(201007, 1_000, 4_000, 2, 2, (42, first), stack="ROOT prefill"),
        interning((2, named(3, "softmax_kernel"))),
        *span(201007, 4_200, 4_900, 3, 2, (42, second), stack="ROOT prefill"),
    )  # fmt: skip


def kineto() -> bytes:
    """The layout of Kineto's builder: no category, a track for every activity, metadata as text."""
    packets = [
        message(
            (10, 99), (60, message((1, 1), (2, "Kineto Trace"), (3, message((1, 0), (6, "Kineto Trace")))))
        )
    ]
    packets += [
        message((10, 99), (11, message((9, INSTANT), (23, name), (11, 1), (4, note(key, value)))))
        for name, key, value in (
            ("trace_metadata", "with_stack", "0"),
            ("device_properties", "properties", '{"id": 0, "name": "NVIDIA H100", "numSms": 132}'),
        )
    ]
    for uuid, pid, name in ((2, 31, "python"), (3, 0, "NVIDIA H100")):
        packets.append(
            message((10, 99), (60, message((1, uuid), (2, name), (3, message((1, pid), (6, name))))))
        )
    for uuid, parent, pid, tid, name in ((4, 2, 31, 31, "thread 31 (python)"), (5, 3, 0, 7, "stream 7")):
        thread = message((1, pid), (2, tid), (5, name))
        packets.append(message((10, 99), (60, message((1, uuid), (5, parent), (2, name), (4, thread)))))
    operands = (
        '"External id": 5, "Ev Idx": 0, "Input Dims": [[4, 8], [8, 16]], "Input type": ["float", "float"]'
    )
    launch = '"External id": 5, "cbid": 211, "correlation": 9'
    work = '"External id": 5, "device": 0, "context": 1, "stream": 7, "correlation": 9, "grid": [1, 1, 1]'
    activities = (
        (4, "aten::mm", 1_000, 9_000, operands, 0),
        (4, "cudaLaunchKernel", 2_000, 3_000, launch, 9),
        (5, "sgemm_32x32x32_NN", 12_000, 17_000, work, 9),
        (5, "ProfilerStep#3", 11_000, 18_000, '"External id": 2', 0),
    )
    for uuid, (parent, name, start, stop, metadata, correlation) in enumerate(activities, start=6):
        parent_name = {4: "thread 31 (python)", 5: "stream 7"}[parent]
        packets.append(message((60, message((1, uuid), (5, parent), (2, parent_name)))))
        notes = [(4, note("metadata", metadata))]
        notes += [(4, note("correlation_id", correlation))] * bool(correlation)
        begin = message((9, BEGIN), (23, name), (11, uuid), *notes)
        packets.append(message((10, 99), (8, EPOCH + start), (11, begin)))
        packets.append(message((10, 99), (8, EPOCH + stop), (11, message((9, END), (11, uuid)))))
    return trace(*packets)


def flashinfer() -> bytes:
    """The layout of tg4perfetto, as flashinfer uses it: a process a multiprocessor, a track a warp group.

    Its events refer to a category that is never written. Group 1 nests `mma` in `tile`; one event never ends.
    """
    stamps = message(*((1, message((1, id), (2, 0))) for id in range(1, 7)), (2, 6))
    config = message((1, message((1, 1024))), (2, message((1, message((1, "track_event"))))))
    head = [
        message((10, 1), (6, stamps)),
        message((10, 1), (33, config)),
        message((10, 2), (59, message((11, message((11, 1))), (58, 1))), (13, CLEARED)),
    ]
    names: dict[str, int] = {}

    def process(uuid: int, pid: int, name: str) -> bytes:
        descriptor = message((1, uuid), (3, message((1, pid), (6, name))), (2, name))
        return message((8, 0), (60, descriptor), (10, 2), (13, NEEDS))

    def track(uuid: int, parent: int, name: str) -> bytes:
        return message((8, 0), (10, 2), (13, NEEDS), (60, message((1, uuid), (2, name), (5, parent))))

    def opened(uuid: int, stamp: int, name: str) -> bytes:
        new = [] if name in names else [(12, message((2, named(len(names) + 1, name))))]
        iid = names.setdefault(name, len(names) + 1)
        return message(
            (8, stamp), *new, (10, 2), (13, NEEDS), (11, message((10, iid), (3, 1), (9, BEGIN), (11, uuid)))
        )

    def closed(uuid: int, stamp: int) -> bytes:
        return message((10, 2), (13, NEEDS), (8, stamp), (11, message((11, uuid), (9, END))))

    return trace(
        *head,
        process(1234567, 1, "SM_003"),
        track(1234568, 1234567, "blk0_g0"),
        opened(1234568, 1_000, "load"), closed(1234568, 1_600),
        opened(1234568, 1_700, "load"), closed(1234568, 2_000),
        track(1234569, 1234567, "blk0_g1"),
        opened(1234569, 1_500, "tile"),
        opened(1234569, 1_600, "mma"), closed(1234569, 2_400),
        closed(1234569, 2_500),
        process(1234570, 4, "SM_011"),
        track(1234571, 1234570, "blk1_g1"),
        opened(1234571, 1_800, "mma"), closed(1234571, 2_900),
        opened(1234571, 3_000, "store"),
    )  # fmt: skip


FILES: Final = {
    "flashinfer.perfetto-trace": flashinfer,
    "rocprofv3.pftrace": rocprofv3,
    "proton.pftrace": proton,
    "kineto.pftrace": kineto,
}


def main() -> None:
    folder = Path(FIXTURES / "perfetto")
    folder.mkdir(exist_ok=True)
    for name, make in FILES.items():
        (folder / name).write_bytes(make())


if __name__ == "__main__":
    main()
