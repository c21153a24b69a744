"""Perfetto traces: what the makers wrote stands in the rows, and what is broken is counted or refused."""

import gzip
import random
import zlib
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.loaders._protobuf import WireError, decode_fields, iter_records
from capture.run import Run
from tests.capture.loaders._perfetto_file import (
    BEGIN,
    BOOT,
    CLEARED,
    COUNTER,
    END,
    EPOCH,
    FILES,
    INSTANT,
    NEEDS,
    named,
    slices,
    trace,
)
from tests.capture.loaders._rows import notices, opened, rows
from tests.capture.loaders._wire import field, message, varint
from tests.conftest import FIXTURES

THREAD = message((10, 1), (60, message((1, 5), (4, message((1, 1), (2, 2), (5, "worker"))))))


def run_of(tmp_path: Path, raw: bytes) -> Run:
    return opened(tmp_path / "x.pftrace", raw)


@pytest.mark.parametrize("name", FILES)
def test_the_fixture_is_what_its_maker_writes(name: str) -> None:
    assert (FIXTURES / "perfetto" / name).read_bytes() == FILES[name]()


def test_interned_names_and_a_clock_that_counts_on(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILES["rocprofv3.pftrace"]())
    start = EPOCH  # the clocks say that the system's stood at BOOT when it was EPOCH
    assert rows(run, "name", "t", "dur", kind="span") == [
        ("hipLaunchKernel", start + 1_500, 200),
        ("hipLaunchKernel", start + 2_000, 200),
        ("hipMemcpyAsync", start + 2_300, 400),
    ]
    assert rows(run, "name", "t", "dur", "step", "track", kind="step") == [
        ("decode step 1", start + 1_000, 9_000, 1, "4242/main 4242")
    ]
    assert rows(run, "name", "t", "dur", "track", "category", "step", kind="kernel") == [
        ("Cijk_Alik_Bljk_BBS_BH_MT256x32x64", start + 4_000, 5_000, "gpu4/stream1", "matmul", 1),
        ("paged_attention_kernel", start + 9_100, 500, "gpu4/stream1", "attention", 1),
        ("MEMORY_COPY_DEVICE_TO_HOST", start + 9_700, 200, "copy/stream1", "copy", 1),
    ]
    launched = rows(run, "grid", "block", "launch", name="Cijk_Alik_Bljk_BBS_BH_MT256x32x64")
    assert launched == [("8x1x1", "256x1x1", start + 1_500)]
    assert rows(run, "name", "t", "value", kind="counter") == [("COPY BYTES to [4]", start + 10_000, 4096.0)]
    assert run.meta["producer"] == "rocprofv3" and run.meta["clock_base_ns"] == EPOCH - BOOT
    assert (run.log.read, run.log.dropped) == (8, 0)


def test_kernels_of_proton_stand_in_the_scope_of_their_launch(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILES["proton.pftrace"]())
    assert rows(run, "name", "t", "dur", "track", "path", kind="kernel") == [
        ("matmul_kernel", 1_000, 3_000, "gpu0/stream7", "prefill"),
        ("softmax_kernel", 4_200, 700, "gpu0/stream7", "prefill"),
    ]
    assert run.meta["producer"] == "Triton Proton"


def test_metadata_of_kineto_says_what_has_no_category(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILES["kineto.pftrace"]())
    (kernel,) = rows(run, "name", "t", "dur", "track", "shape", "flops", kind="kernel")
    assert kernel[:4] == ("sgemm_32x32x32_NN", EPOCH + 12_000, 5_000, "gpu0/stream7")
    assert kernel[4:] == ("m=4 n=16 k=8", 2.0 * 4 * 16 * 8)
    assert rows(run, "name", "lens", "dur", track="thread 31 (python)") == [
        ("aten::mm", "host", 8_000),
        ("cudaLaunchKernel", "host", 1_000),
    ]
    assert rows(run, "name", "kind", lens="gpu")[0] == ("ProfilerStep#3", "span"), "a cover is no work"
    assert run.meta["device"] == "NVIDIA H100" and run.meta["producer"] == "PyTorch profiler"


def test_regions_inside_a_kernel_have_a_lane_each(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILES["flashinfer.perfetto-trace"]())
    assert rows(run, "name", "track", "t", "dur", kind="kernel") == [
        ("load", "sm3/block0 group0", 1_000, 600),
        ("mma", "sm3/block0 group1", 1_600, 800),
        ("load", "sm3/block0 group0", 1_700, 300),
        ("mma", "sm11/block1 group1", 1_800, 1_100),
        ("store", "sm11/block1 group1", 3_000, None),
    ]
    assert rows(run, "name", "dur", kind="span") == [("tile", 1_000)], "what holds others is no leaf"
    assert notices(run)["regions"] == 1 and notices(run)["unended"] == 1


def test_blocks_and_groups_are_lanes_too(tmp_path: Path) -> None:
    """As mirage and earlier flashinfer name them: groups of tracks below the process of a block."""
    process = message((1, 1), (6, "block_2"))
    block = message((60, message((1, 1), (2, "block_2"), (3, process))))
    group = message((60, message((1, 2), (2, "group_3"), (5, 1))))
    track = message((60, message((1, 3), (2, "group_3"), (5, 2))))
    regions = slices(3, [(10, 40, "", "matmul"), (40, 45, "", "store")])
    run = run_of(tmp_path, trace(block, group, track, *regions))
    assert rows(run, "name", "track", "dur", kind="kernel") == [
        ("matmul", "block2/group3", 30),
        ("store", "block2/group3", 5),
    ]


def test_regions_that_proton_writes_as_a_chrome_trace() -> None:
    (run,) = load(FIXTURES / "chrome" / "proton_inside_kernel.json", cache=False)
    assert rows(run, "name", "track", "path", "t", "dur", track="sm7/cta1 warp0") == [
        ("load", "sm7/cta1 warp0", "attention_fwd", 50, 650)
    ]
    assert set(run.events["kind"]) == {"kernel"} and set(run.events["lens"]) == {"gpu"}


def test_scopes_that_proton_states_of_each_kernel_are_its_path() -> None:
    (run,) = load(FIXTURES / "chrome" / "proton_timeline.json", cache=False)
    assert rows(run, "name", "track", "path", "layer", "t", "dur", kind="kernel") == [
        ("matmul_kernel", "gpu0/stream7", "layer_3 / attn", 3, 2_500, 3_250),
        ("add_kernel", "gpu0/stream7", None, None, 6_000, 500),
    ]


def test_packets_may_be_compressed_and_the_file_too(tmp_path: Path) -> None:
    plain = trace(THREAD, *slices(5, [(10, 30, "cpu_op", "aten::mm")]))
    packed = trace(message((50, zlib.compress(plain))))
    expected = [("aten::mm", 10, 20, "worker")]
    for raw in (plain, packed, gzip.compress(packed)):
        assert rows(run_of(tmp_path, raw), "name", "t", "dur") == [e[:3] for e in expected]


def test_a_first_packet_that_is_larger_than_what_is_sniffed(tmp_path: Path) -> None:
    noise = random.Random(3).randbytes(400_000)
    first = message((50, zlib.compress(trace(message((36, noise)), THREAD))))
    assert len(first) > 1 << 18
    run = run_of(tmp_path, trace(first, *slices(5, [(1, 4, "kernel", "k")])))
    assert rows(run, "name", "dur") == [("k", 3)]


def test_cleared_state_is_not_used_again(tmp_path: Path) -> None:
    def event(stamp: int, kind: int, name: int = 0) -> bytes:
        named_by = [(10, name)] if name else []
        return message((8, stamp), (10, 1), (13, NEEDS), (11, message((9, kind), (11, 5), *named_by)))

    def interned(name: str, flags: int) -> bytes:
        return message((10, 1), (13, flags), (12, message((2, named(1, name)))))

    run = run_of(
        tmp_path,
        trace(
            THREAD, interned("first", CLEARED),
            event(1, BEGIN, 1), event(2, END),
            message((10, 1), (13, CLEARED)),
            event(3, BEGIN, 1), event(4, END),
            interned("second", NEEDS),
            event(5, BEGIN, 1), event(6, END),
        ),
    )  # fmt: skip
    assert rows(run, "name", "t") == [("first", 1), ("event 1", 3), ("second", 5)]
    assert notices(run)["lost_names"] == 1


def test_events_after_a_loss_wait_for_new_state(tmp_path: Path) -> None:
    def span(stamp: int, *more: tuple[int, int]) -> list[bytes]:
        kinds = ((stamp, BEGIN), (stamp + 1, END))
        return [message((8, t), (10, 1), *more, (11, message((9, k), (11, 5), (23, "k")))) for t, k in kinds]

    lost = message((10, 1), (42, 1))
    run = run_of(tmp_path, trace(THREAD, *span(1), lost, *span(3, (13, NEEDS)), *span(5)))
    assert rows(run, "t") == [(1,), (5,)]
    assert notices(run)["lost_state"] == 2 and (run.log.read, run.log.dropped) == (4, 2)


def test_a_track_with_two_writers_is_joined_in_the_order_of_time(tmp_path: Path) -> None:
    def mark(stamp: int, kind: int, name: str, sequence: int) -> bytes:
        return message((8, stamp), (10, sequence), (11, message((9, kind), (11, 5), (23, name))))

    run = run_of(
        tmp_path,
        trace(
            THREAD,
            mark(0, BEGIN, "outer", 1),
            mark(9, END, "", 1),
            mark(2, BEGIN, "inner", 2),
            mark(4, END, "", 2),
        ),
    )
    assert rows(run, "name", "t", "dur", kind="span") == [("outer", 0, 9)]
    assert rows(run, "name", "t", "dur", kind="kernel") == [("outer", None, 7), ("inner", 2, 2)]


@pytest.mark.parametrize(
    ("order", "durations"),
    [
        (["outer", "inner", "end 4", "end 9"], {"outer": 9, "inner": 2}),
        (["inner", "outer", "end 4", "end 9"], {"outer": 9, "inner": 2}),  # Chromium writes some begins late
        (["outer", "end 4", "inner", "end 9"], {"outer": 4, "inner": 7}),  # pairs that overlap
    ],
)
def test_nested_slices_are_paired_in_time_order_and_pairs_as_written(
    order: list[str], durations: dict[str, int], tmp_path: Path
) -> None:
    events = {"outer": (0, BEGIN), "inner": (2, BEGIN), "end 4": (4, END), "end 9": (9, END)}
    marks = [
        message((8, events[name][0]), (10, 1), (11, message((9, events[name][1]), (11, 5), (23, name))))
        for name in order
    ]
    run = run_of(tmp_path, trace(THREAD, *marks))
    slices = run.events.filter(pl.col("t").is_not_null() & pl.col("kind").is_in(["span", "kernel"]))
    assert dict(slices.select(pl.col("name").cast(pl.String), "dur").rows()) == durations


def test_counters_that_state_differences_are_added_up(tmp_path: Path) -> None:
    counter = message((60, message((1, 9), (2, "memory"), (8, message((4, 1024), (5, 1))))))

    def value(stamp: int, v: int) -> bytes:
        return message((8, stamp), (11, message((9, COUNTER), (11, 9), (30, v))))

    run = run_of(tmp_path, trace(counter, value(1, 4), value(2, 3), value(3, -2)))
    assert rows(run, "name", "value") == [("memory", 4096.0), ("memory", 7168.0), ("memory", 5120.0)]


def test_instants_are_marks(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        trace(THREAD, message((8, 3), (11, message((9, INSTANT), (11, 5), (23, "mark"))))),
    )
    assert rows(run, "kind", "name", "t") == [("mark", "mark", 3)]


def test_annotations_nested_too_deeply_end(tmp_path: Path) -> None:
    deep = message((10, "leaf"), (4, 1))
    for _ in range(2_000):
        deep = message((10, "d"), (11, deep))
    old = message((5, 1))
    for _ in range(2_000):
        old = message((4, old))
    noted = [(4, deep), (4, message((10, "old"), (8, old)))]
    begin = message((9, BEGIN), (11, 5), (23, "k"), *noted)
    run = run_of(
        tmp_path,
        trace(THREAD, message((8, 1), (11, begin)), message((8, 4), (11, message((9, END), (11, 5))))),
    )
    assert rows(run, "name", "dur") == [("k", 3)]


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    circle = [message((60, message((1, a), (2, f"t{a}"), (5, b)))) for a, b in ((1, 2), (2, 1))]
    run = run_of(tmp_path, trace(*circle, *slices(1, [(0, 2, "kernel", "k")])))
    assert rows(run, "name", "dur") == [("k", 2)]


def test_what_cannot_be_read_of_a_packet_is_counted(tmp_path: Path) -> None:
    good = slices(5, [(10, 30, "kernel", "k")])
    bad = [
        message((10, 1)) + b"\x5a\xff\xff\xff\xff\x0f",  # an event of 4 GB
        message((8, 1), (11, b"\x0b")),  # an event in a group, which ends nowhere
        message((8, 1), (11, message((9, BEGIN), (4, b"\x09\x00")))),  # a number that is cut
        message((8, 1), (11, 7)),  # a number for an event
    ]
    run = run_of(tmp_path, trace(THREAD, *good, *bad))
    assert rows(run, "name", "dur") == [("k", 20)]
    assert (run.log.read, run.log.dropped) == (5, 4) and notices(run)["bad_packet"] == 4


def test_numbers_of_the_wrong_kind_are_no_names(tmp_path: Path) -> None:
    strange = message(
        (8, 2), (10, b"x"), (11, message((9, BEGIN), (11, b"y"), (23, 4), (3, b"z"), (10, b"w")))
    )
    run = run_of(tmp_path, trace(THREAD, *slices(5, [(10, 30, "kernel", "k")] * 4), strange))
    assert rows(run, "name", "dur", kind="kernel") == [("k", 20)] * 4


def test_a_packet_that_swells_is_left_out(tmp_path: Path) -> None:
    bomb = message((50, zlib.compress(bytes(1 << 27))))
    run = run_of(tmp_path, trace(THREAD, *slices(5, [(1, 2, "kernel", "k")]), bomb))
    assert rows(run, "name") == [("k",)] and notices(run)["bad_packet"] == 1


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (trace(THREAD), "none of its packets is a track event"),
        (trace(THREAD) + field(1, bytes(100))[:50], "ends within its first packets"),
        (trace(message((10, 1), (36, bytes(16)))), "none of its packets is a track event"),
    ],
)
def test_a_trace_without_events_is_refused(tmp_path: Path, raw: bytes, why: str) -> None:
    with pytest.raises(UnreadableError, match=why) as actual:
        run_of(tmp_path, raw)
    assert "\n" not in str(actual.value)


@pytest.mark.parametrize(
    "raw", [b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0a", b"\nabc def", b"\x0a\x02\x08"]
)
def test_other_bytes_are_not_taken_for_packets(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(UnreadableError):
        run_of(tmp_path, raw)


def test_records_of_one_field_are_found_among_others() -> None:
    """A tag and a number of one byte each, and of more."""
    fields_of_all = ((20, 5), (1, "ab"), (2, 300), (3, 1.0), (7, 9), (1, "c" * 200), (2, "no"))
    whole = message(*fields_of_all)
    actual = list(iter_records(whole, 1))
    assert [record for _, record in actual] == [b"ab", b"c" * 200]
    assert [whole[at] for at, _ in actual] == [0x0A, 0x0A]
    for bad in (b"\x0a\x05ab", b" ", b" \x80", b"\x00\x01"):
        with pytest.raises(WireError):
            list(iter_records(whole + bad, 1))


def test_the_wire_reader_refuses_what_is_no_message() -> None:
    assert decode_fields(message((1, 300), (2, "ab"), (3, 1.0))) == [
        (1, 300),
        (2, b"ab"),
        (3, 0x3FF0000000000000),
    ]
    for bad in (b"\x08", b"\x12\x05ab", b"\x00\x01", b"\x0f", b"\x09abc", b"\x08" + b"\xff" * 11, varint(3)):
        with pytest.raises(WireError):
            decode_fields(bad)
