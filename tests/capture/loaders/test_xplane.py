"""XLA profiles: what the maker wrote stands in the rows, and what is broken is counted or refused."""

import gzip
import json
from pathlib import Path

import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.loaders import find_loaders
from capture.run import Run
from capture.source import Source
from tests.capture.loaders._rows import opened, rows
from tests.capture.loaders._wire import field, message
from tests.capture.loaders._xplane_file import EPOCH, FILES, jax_gpu, line, plane, refers, space, stat
from tests.conftest import FIXTURES


def run_of(tmp_path: Path, raw: bytes) -> Run:
    return opened(tmp_path / "x.pb", raw)


@pytest.mark.parametrize("name", FILES)
def test_the_fixture_is_what_its_maker_writes(name: str) -> None:
    assert (FIXTURES / "xplane" / name).read_bytes() == FILES[name]()


def test_work_of_a_gpu_has_its_launch_scope_step_and_resources(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILES["jax_gpu.xplane.pb"]())
    assert rows(run, "name", "t", "dur", "launch", "step", "category", kind="kernel") == [
        ("gemm_fusion_dot_5", EPOCH + 5_000, 3_000, EPOCH + 1_000, 3, "matmul"),
        ("loop_add_fusion", EPOCH + 9_000, 500, EPOCH + 2_000, 3, "elementwise"),
        ("MemcpyD2H", EPOCH + 9_600, 200, EPOCH + 3_000, 3, "copy"),
    ]
    (first, *_) = rows(
        run, "track", "path", "layer", "grid", "block", "registers", "shared", "occupancy", kind="kernel"
    )
    assert first[:3] == ("gpu0/Stream #14(Compute,MemcpyD2H)", "jit(step) / transformer / layer_3 / attn", 3)
    assert first[3:] == ("32x2x1", "128x1x1", 64, 1024 + 512, 50.0)
    assert rows(run, "name", "t", "dur", "step", kind="step") == [("train step 3", EPOCH + 500, 12_000, 3)]
    assert [name for (name,) in rows(run, "name", category="host")] == ["cuLaunchKernel"] * 2 + [
        "cuMemcpyDtoHAsync"
    ]
    assert (run.log.read, run.log.dropped) == (8, 0)


def test_operations_of_a_tpu_are_its_work_and_the_rest_covers_them(tmp_path: Path) -> None:
    run = run_of(tmp_path, FILES["tpu.xplane.pb"]())
    assert rows(run, "name", "t", "dur", "step", "track", kind="kernel") == [
        ("fusion.12", EPOCH + 100, 4_000, 5, "tpu0/XLA Ops"),
        ("all-reduce.3", EPOCH + 10_200, 3_000, 6, "tpu0/XLA Ops"),
    ]
    assert rows(run, "category", name="all-reduce.3") == [("comm",)]
    assert rows(run, "name", "dur", kind="span") == [("jit_step(123)", 8_500)]
    assert rows(run, "step", "dur", kind="step") == [(5, 9_000), (6, 8_000)]


def shape(kind: int, *sizes: int) -> bytes:
    return message((2, kind), *((3, size) for size in sizes))


def program(name: str, *inputs: bytes, donated: int = 0) -> bytes:
    aliases = message(*((1, b"") for _ in range(donated)))
    module = message((1, name), (4, message(*((1, each) for each in inputs))), (8, aliases))
    entry = message((1, 1), (2, name), (5, message((1, 1), (6, message((1, module))))))
    return message((1, 1), (2, entry))


@pytest.mark.parametrize("names", [("jit__lambda_", "jit__lambda_"), ("jit_prefill", "jit_decode")])
def test_inputs_are_those_of_prompts_and_of_single_tokens(names: tuple[str, str], tmp_path: Path) -> None:
    """One of two programs of equal weights stood for both, by chance: equal runs had other work."""
    programs = (
        program(name, shape(11, 8, 8), shape(4, *sizes))
        for name, sizes in zip(names, ((2, 24), (2,)), strict=True)
    )
    metadata = message((1, 9), (2, "/host:metadata"), *((4, each) for each in programs))
    events = [(1, 0, 9_000, {"hlo_module": name}) for name in names]
    run = run_of(tmp_path, space(plane(2, "/host:CPU", [line(1, "python", events)], {1: "dot"}), metadata))
    assert run.meta["program inputs"] == {"8x8": 2, "2x24": 1, "2": 1}


def test_inputs_are_those_of_the_largest_program_that_ran(tmp_path: Path) -> None:
    """Of an HloProto: name, and inputs of format 16 (bf16), 11 (f32), 4 (s32), also in a tuple."""
    packed = message((2, 16), (3, bytes([3, 5])))
    pair = message((2, 13), (4, shape(16, 4, 4)), (4, shape(11, 2)))
    programs = (
        program("jit_small", shape(11, 2)),
        program("jit_step", packed, pair, shape(4, 100), donated=1),
        program("jit_other", shape(11, 9, 9)),
    )
    metadata = message((1, 9), (2, "/host:metadata"), *((4, each) for each in programs), (4, b"\x12\x02\xff"))
    events = [(1, 0, 9_000, {"hlo_module": name}) for name in ("jit_small", "jit_step")]
    host = plane(2, "/host:CPU", [line(1, "python", events)], {1: "dot"})
    run = run_of(tmp_path, space(host, metadata))
    assert run.meta["program inputs"] == {"3x5": 1, "4x4": 1, "2": 1, "100": 1}, "100 tokens"
    assert (run.meta["dtype"], run.meta["donated inputs"]) == ("bfloat16", 1)
    assert "program inputs" not in run_of(tmp_path, space(host)).meta
    (tmp_path / "host.xplane.pb").write_bytes(space(host, metadata))
    process = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/host:CPU"}}
    operation = {"ph": "X", "name": "dot", "pid": 1, "tid": 1, "ts": 1, "dur": 9, "args": {"hlo_op": "dot"}}
    for name in ("host", "elsewhere"):
        path = tmp_path / f"{name}.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": [process, operation]}).encode()))
        (trace,) = load(path, cache=False)
        inputs = run.meta["program inputs"] if name == "host" else None
        assert trace.meta.get("program inputs") == inputs, "JAX writes both of a run into one folder"


def test_steps_of_the_host_go_before_those_of_a_device(tmp_path: Path) -> None:
    lines = [line(1, "Steps", [(1, 0, 9_000, {})]), line(2, "XLA Ops", [(2, 0, 8_000, {})])]
    device = plane(1, "/device:TPU:0", lines, {1: "3", 2: "fusion"})
    host = plane(2, "/host:CPU", [line(1, "python", [(1, 0, 20_000, {"step_num": 3})])], {1: "train"})
    run = run_of(tmp_path, space(device, host))
    assert rows(run, "name", "lens", kind="step") == [("train step 3", "wall")]
    assert rows(run, "name", "lens", kind="span") == [("step 3", "gpu")]


def test_a_statistic_may_refer_to_the_name_of_another(tmp_path: Path) -> None:
    known = message((1, 1), (2, message((1, 1), (2, "fusion"), (5, refers("tf_op", 9)))))
    scope = message((1, 9), (2, message((1, 9), (2, "jit(f)/layer_7/mul"))))
    stats = [message((1, n), (2, message((1, n), (2, s)))) for n, s in ((4, "tf_op"),)]
    xla = line(1, "XLA Ops", [(1, 0, 1_000, {})], start=5)
    raw = message((2, "/device:TPU:0"), (3, xla), (4, known), (5, scope), *((5, s) for s in stats))
    run = run_of(tmp_path, space(raw))
    assert rows(run, "t", "path", "layer") == [(5, "jit(f) / layer_7", 7)]


def test_what_is_broken_is_counted(tmp_path: Path) -> None:
    good = line(3, "XLA Ops", [(1, 0, 2_000, {})], start=10)
    bad = message(
        (1, 3), (2, "XLA Ops"), (3, 10), (4, b"\x08"), (4, message((1, 1), (5, 7))), (4, message((1, 99)))
    )
    broken = message((2, "/host:CPU")) + field(3, b"\x0b")
    titles = {1: "fusion"}
    run = run_of(tmp_path, space(plane(1, "/device:TPU:0", [good, bad], titles), broken))
    assert rows(run, "name", "dur") == [("fusion", 2), ("unnamed", 0)]
    assert (run.log.read, run.log.dropped) == (4, 2)
    assert {n.id for n in run.log.notices} >= {"bad_event", "no_time", "bad_plane"}


def test_a_cut_file_keeps_its_whole_planes(tmp_path: Path) -> None:
    raw = FILES["tpu.xplane.pb"]()
    whole = raw + field(1, plane(2, "/host:CPU", [line(1, "python", [(1, 0, 5, {})])], {1: "x"}))
    run = run_of(tmp_path, whole[:-3])
    assert run.events.height == 5 and run.meta["truncated"]
    assert any(n.id == "cut_short" and n.severity == "data_loss" for n in run.log.notices)


def test_what_the_profiler_said_is_noted(tmp_path: Path) -> None:
    output = FILES["tpu.xplane.pb"]() + field(2, "no device\x1b[31m\n") + field(3, "buffer full")
    run = run_of(tmp_path, output)
    messages = [n.message for n in run.log.notices]
    assert "the profiler's warning: buffer full" in messages
    assert any(m.startswith("the profiler's error: no device") and "\x1b" not in m for m in messages)


@pytest.mark.parametrize(
    "details", ["", "grid:1,2", "grid:a,b,c regs:" + "9" * 400, "regs:1 " * 20_000, "occ_pct:1.5"]
)
def test_details_of_any_text_are_taken_or_left(tmp_path: Path, details: str) -> None:
    gpu = line(1, "Stream #1", [(1, 0, 3_000, {"kernel_details": details})], start=0)
    run = run_of(tmp_path, space(plane(1, "/device:GPU:0", [gpu], {1: "k"})))
    assert rows(run, "name", "dur") == [("k", 3)]


def test_times_beyond_all_bounds_are_no_times(tmp_path: Path) -> None:
    odd = line(1, "XLA Ops", [(1, -1, 3_000, {}), (1, 0, -1 << 62, {})], start=(1 << 63) - 1)
    fine = line(2, "XLA Ops", [(1, 0, 3_000, {})], start=7)
    run = run_of(tmp_path, space(plane(1, "/device:TPU:0", [odd, fine], {1: "k"})))
    assert rows(run, "t", "dur") == [(7, 3)]


def test_a_profile_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="without a readable event"):
        run_of(tmp_path, space(plane(1, "/host:metadata", [], {})))


def test_a_plane_with_statistics_of_its_own_is_no_packet_of_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "x"
    modules = message((1, message((2, "/host:metadata"), (6, stat("unread", "an HLO module")))))
    path.write_bytes((modules + jax_gpu())[: len(modules) + 20])  # the head ends within the second plane
    assert [loader.FORMAT for loader in find_loaders(Source.from_path(path).head)] == ["xplane"]


@pytest.mark.parametrize(
    "raw", [b"\n", b"\n\x00", b"\n\x05\x12\x03abc", b"\n\x04\x08\x01\x10\x02", b"\n\xff\xff\xff"]
)
def test_other_bytes_are_no_plane(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(raw)
    assert find_loaders(Source.from_path(path).head) == []
