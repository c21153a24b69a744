"""Chrome traces: figures against a plain reading of the JSON, both readers against each other, cuts."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.loaders import find_loaders
from capture.loaders.chrome import jsonl, trace
from capture.run import Run
from capture.source import Source
from tests.bench._chrome_maker import write
from tests.capture.loaders._chrome_samples import RANK_0, TORCH_LAYOUT
from tests.conftest import document, shared

SAMPLES = (
    *TORCH_LAYOUT,
    "samples/chrome_trace/backward_thread.json",
    "samples/chrome_trace/bert-small-h100.json.gz",
    "samples/chrome_trace/bert-small-mi300.json.gz",
    "samples/chrome_trace/sglang_Qwen3-8B_decode.json.gz",
)
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def opened(path: Path) -> Run:
    """The run of a file, by the one loader that claims it."""
    source = Source.from_path(path)
    (loader,) = find_loaders(source.head)
    (run,) = loader.load(source)
    return run


def plain(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, parse_float=str)


def whole_ns(microseconds: str | int) -> int:
    """Decimal microseconds as nanoseconds, by hand."""
    whole, _, part = str(microseconds).partition(".")
    return int(whole) * 1000 + int((part + "000")[:3]) * (-1 if whole.startswith("-") else 1)


def kernels(run: Run) -> pl.DataFrame:
    return run.events.filter((pl.col("kind") == "kernel") & (pl.col("lens") == "gpu"))


@pytest.mark.corpus
@pytest.mark.parametrize("name", SAMPLES)
def test_sample_equals_a_plain_reading(name: str) -> None:
    path = document(name)
    stated, run = plain(path), opened(path)
    complete = [e for e in stated["traceEvents"] if e["ph"] == "X"]
    device = [e for e in complete if e["cat"] in DEVICE]
    base = stated.get("baseTimeNanoseconds", 0)
    assert run.log.read == sum(e["ph"] not in "stf" for e in stated["traceEvents"])
    assert run.log.dropped == 0
    timed = run.events.filter(pl.col("dur").is_not_null())
    assert timed.height == len(complete)
    assert timed["dur"].sum() == sum(whole_ns(e["dur"]) for e in complete)
    actual = kernels(run)
    assert sorted(actual["dur"]) == sorted(whole_ns(e["dur"]) for e in device)
    assert sorted(timed["t"]) == sorted(whole_ns(e["ts"]) + base for e in complete)
    names = actual.group_by("name").agg(pl.col("dur").sum())
    expected: dict[str, int] = {}
    for e in device:
        expected[e["name"]] = expected.get(e["name"], 0) + whole_ns(e["dur"])
    assert dict(names.with_columns(pl.col("name").cast(pl.String)).iter_rows()) == expected


@pytest.mark.parametrize("name", [name for name in SAMPLES if "sglang" not in name])
def test_steps_are_the_profilers_and_not_counted_twice(name: str) -> None:
    path = document(name)
    stated = {
        int(e["name"].split("#")[1]): whole_ns(e["dur"])
        for e in plain(path)["traceEvents"]
        if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"
    }
    steps = opened(path).events.filter(pl.col("kind") == "step")
    actual = dict(steps.select("step", "dur").iter_rows()) if "step" in steps.columns else {}
    assert actual == stated


@pytest.mark.parametrize("name", ["chrome/torch_decode.json", "chrome/torch_grouped_keys.json", RANK_0])
def test_a_kernel_belongs_to_the_step_that_launched_it(name: str) -> None:
    """Recomputed by hand: kernel → its launch by correlation → the step around the launch."""
    path = document(name)
    events = [e for e in plain(path)["traceEvents"] if e["ph"] == "X"]
    launch = {e["args"]["correlation"]: whole_ns(e["ts"]) for e in events if e["cat"] == "cuda_runtime"}
    steps = [
        (whole_ns(e["ts"]), whole_ns(e["ts"]) + whole_ns(e["dur"]), int(e["name"][13:]))
        for e in events
        if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"
    ]
    expected: dict[int | None, int] = {}
    for e in events:
        if e["cat"] in DEVICE:
            at = launch.get(e["args"]["correlation"], whole_ns(e["ts"]))
            step = next((number for start, end, number in steps if start <= at < end), None)
            expected[step] = expected.get(step, 0) + 1
    actual = kernels(opened(path)).group_by("step").agg(pl.len())
    assert dict(actual.iter_rows()) == expected


def test_layers_come_from_the_modules_around_the_launch() -> None:
    """BERT-small has four layers of twelve kernels each."""
    run = opened(shared("samples/chrome_trace/bert-small-h100.json.gz"))
    layers = kernels(run).group_by("layer").agg(pl.len()).drop_nulls()
    assert dict(layers.iter_rows()) == {0: 12, 1: 12, 2: 12, 3: 12}
    assert run.meta["device"] == "NVIDIA H100 80GB HBM3"


def test_memory_is_what_is_allocated_and_reserved_after_each_change() -> None:
    path = shared("samples/chrome_trace/bert-small-h100.json.gz")
    run = opened(path)
    memory = run.events.filter(pl.col("kind") == "memory")
    changes = [e["args"] for e in plain(path)["traceEvents"] if e["name"] == "[memory]"]
    for name, key in (("allocated", "Total Allocated"), ("reserved", "Total Reserved")):
        assert memory.filter(pl.col("name") == name)["bytes"].to_list() == [c[key] for c in changes]


def test_layers_and_ranks_of_the_older_layout() -> None:
    """Two steps of two layers, each with two kernels."""
    run = opened(document("chrome/torch_grouped_keys.json"))
    assert dict(kernels(run).group_by("layer").agg(pl.len()).iter_rows()) == {0: 4, 1: 4}
    assert (run.meta["device"], run.meta["rank"], run.meta["world_size"]) == ("Old GPU", 1, 2)
    assert set(kernels(run)["track"].cast(pl.String)) == {"gpu0/stream7"}


def test_memory_and_copies_of_the_new_layout() -> None:
    run = opened(document("chrome/torch_decode.json"))
    memory = run.events.filter(pl.col("kind") == "memory").cast({"name": pl.String, "track": pl.String})
    assert memory.select("name", "track", "bytes").rows() == [
        ("allocated", "gpu0", 4608), ("reserved", "gpu0", 2097152),
    ]  # fmt: skip
    assert run.events.filter(pl.col("category") == "copy")["dur"].to_list() == [1_250]


def test_a_change_without_a_total_is_no_size(tmp_path: Path) -> None:
    event = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": {"Bytes": -64}}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 5}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel, event]}))
    run = opened(path)
    memory = run.events.filter(pl.col("kind") == "memory")
    assert memory["name"].cast(pl.String).to_list() == ["allocation change"]


def test_each_change_has_its_own_total_and_device_whatever_else_is_wrong(tmp_path: Path) -> None:
    """Changes are decoded together: one that states nothing, or no object, must not shift the others."""
    stated = [{"Device Id": 1, "Total Allocated": 5, "Total Reserved": 9},
              {"Device Id": -1, "Total Reserved": 7},
              None, [], {"Device Id": "0", "Total Allocated": True}, {"Device Id": 2, "Bytes": 3},
              {"Device Id": 0, "Total Allocated": 11}]  # fmt: skip
    event = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1}
    events: list[dict[str, Any]] = [event | {"ts": at, "args": args} for at, args in enumerate(stated)]
    events.insert(2, {"ph": "C", "name": "load", "pid": 1, "tid": 1, "ts": 1.5, "args": {"v": 4}})
    path = tmp_path / "changes.json"
    path.write_text(json.dumps({"traceEvents": events}))
    run = opened(path)
    rows = run.events.filter(pl.col("kind") == "memory").select("t", "name", "track", "bytes").rows()
    assert [(t - rows[0][0], name, track, size) for t, name, track, size in rows] == [
        (0, "allocated", "gpu1", 5), (0, "reserved", "gpu1", 9), (1000, "reserved", "cpu", 7),
        (2000, "allocation change", "cpu", 0), (3000, "allocation change", "cpu", 0),
        (4000, "allocation change", "cpu", 0), (5000, "allocation change", "gpu2", 3),
        (6000, "allocated", "gpu0", 11),
    ]  # fmt: skip
    assert run.events["kind"].to_list().index("counter") == 3


def test_half_a_character_in_the_header_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 5}
    path.write_text(json.dumps({"schemaVersion": "\ud800", "traceEvents": [kernel]}))
    run = opened(path)
    stated = dict(run.tables["trace"].iter_rows())
    assert kernels(run)["dur"].to_list() == [5_000] and stated["schemaVersion"] == "\ufffd"


def test_backward_kernels_and_ranks() -> None:
    run = opened(shared(RANK_0))
    assert (run.meta["rank"], run.meta["world_size"]) == (0, 1)
    phases = set(kernels(run)["phase"].cast(pl.String).drop_nulls())
    assert {"backward", "optimizer"} <= phases
    tracks = set(kernels(run)["track"].cast(pl.String))
    assert "gpu0/stream7" in tracks


def test_epoch_microseconds_lose_no_nanosecond(tmp_path: Path) -> None:
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %s, "dur": 0.001}'
    path = tmp_path / "epoch.json"
    starts = ["1669329643132548.123", "1669329643132548.124", '"1669329643132548.125"']
    path.write_text('{"traceEvents": [' + ",".join(event % ts for ts in starts) + "]}")
    run = opened(path)
    first = 1669329643132548123
    assert run.events["t"].to_list() == [first, first + 1, first + 2]
    assert run.events["dur"].to_list() == [1, 1, 1]


def test_steps_layers_and_phases_of_a_decode_loop(printed: Path) -> None:
    """The maker prints 26 layers, each with the same launches; a step holds all of them."""
    run = opened(printed)
    table = kernels(run).group_by("step", "layer").agg(pl.len())
    assert set(table["layer"]) == set(range(26))
    assert table["len"].n_unique() == 1
    assert table["step"].null_count() == 0
    assert run.tables["devices"]["name"].to_list() == ["Synthetic GPU"]


def lines_of(events: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(e) + "\n" for e in events)


def event(**keys: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 0, "dur": 1} | keys


def test_leaf_operations_stand_for_kernels_without_a_device(tmp_path: Path) -> None:
    path = tmp_path / "cpu.jsonl"
    path.write_text(
        lines_of(
            [
                event(cat="user_annotation", name="ProfilerStep#3", ts=0, dur=100),
                event(name="aten::linear", ts=1, dur=20),
                event(name="aten::addmm", ts=2, dur=10),
                event(name="aten::relu", ts=30, dur=5),
                event(name="aten::relu", tid=2, ts=3, dur=5),
            ]
        )
    )
    run = opened(path)
    leaves = run.events.filter(pl.col("kind") == "kernel")
    assert sorted(leaves["name"].cast(pl.String)) == ["aten::addmm", "aten::relu", "aten::relu"]
    assert set(leaves["lens"].cast(pl.String)) == {"host"} and set(leaves["step"]) == {3}
    assert [n.id for n in run.log.notices] == ["leaf_ops"]


def test_scopes_tell_phase_layer_and_the_role_of_kernels_that_do_not(tmp_path: Path) -> None:
    def launch(name: str, ts: int, correlation: int) -> list[dict[str, Any]]:
        args = {"correlation": correlation}
        gpu = event(cat="kernel", name=name, pid=0, tid=7, ts=ts + 500, dur=5, args=args)
        return [event(cat="cuda_runtime", name="cudaLaunchKernel", ts=ts, args=args), gpu]

    path = tmp_path / "scopes.jsonl"
    path.write_text(
        lines_of(
            [
                event(cat="user_annotation", name="decode", ts=0, dur=90),
                event(cat="user_annotation", name="L3.attn.qkv", ts=10, dur=20),
                event(cat="user_annotation", name="layers.3.mlp.down_proj", ts=40, dur=20),
                *launch("ampere_gemm_128x64", 15, 1),
                *launch("rms_norm_kernel", 20, 2),
                *launch("ampere_gemm_128x64", 50, 3),
                *launch("ampere_gemm_128x64", 70, 4),
                *launch("ampere_gemm_128x64", 200, 5),
            ]
        )
    )
    actual = kernels(opened(path)).sort("t").select("phase", "layer", "op", "path")
    assert actual.with_columns(pl.col(pl.Categorical).cast(pl.String)).rows() == [
        ("decode", 3, "attn.qkv", "decode / L3.attn.qkv"),
        ("decode", 3, "norm", "decode / L3.attn.qkv"),
        ("decode", 3, "mlp.down", "decode / layers.3.mlp.down_proj"),
        ("decode", None, None, "decode"),
        (None, None, None, None),
    ]


def test_begin_and_end_counters_and_instants(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text(
        lines_of(
            [
                {"ph": "B", "cat": "kernel", "name": "outer", "pid": 0, "tid": 7, "ts": 10},
                {"ph": "B", "cat": "kernel", "name": "inner", "pid": 0, "tid": 7, "ts": 12.5},
                {"ph": "E", "pid": 0, "tid": 7, "ts": 13},
                {"ph": "E", "pid": 0, "tid": 7, "ts": 20},
                {"ph": "E", "pid": 0, "tid": 7, "ts": 21},
                {"ph": "b", "cat": "io", "id": 5, "name": "read", "pid": 0, "tid": 7, "ts": 1},
                {"ph": "e", "cat": "io", "id": 5, "name": "read", "pid": 0, "tid": 9, "ts": 4},
                {"ph": "C", "name": "queue", "pid": 0, "ts": 5, "args": {"depth": 3}},
                {"ph": "i", "name": "note this", "pid": 0, "tid": 1, "ts": 6},
            ]
        )
    )
    run = opened(path)
    timed = run.events.filter(pl.col("dur").is_not_null())
    assert dict(timed.select(pl.col("name").cast(pl.String), "dur").iter_rows()) == {
        "outer": 10_000, "inner": 500, "read": 3_000,
    }  # fmt: skip
    assert run.log.dropped == 1 and run.log.retained == run.events.height
    counter = run.events.filter(pl.col("kind") == "counter")
    assert counter.select("name", "value").row(0) == ("queue", 3.0)
    assert run.events.filter(pl.col("kind") == "mark")["name"].to_list() == ["note this"]


def test_jax_devices_are_known_by_their_names(tmp_path: Path) -> None:
    def meta(kind: str, told: str, tid: int = 0) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": 1, "tid": tid, "args": {"name": told}}

    def on(tid: int, name: str, pid: int = 1) -> dict[str, Any]:
        return {"ph": "X", "pid": pid, "tid": tid, "ts": 1.5, "dur": 2.25, "name": name}

    events = [
        meta("process_name", "/device:GPU:0"), meta("thread_name", "Stream #20(Kernel)", 20),
        meta("thread_name", "XLA Ops", 21), on(20, "fusion_3"), on(21, "fusion"),
        on(5, "PjitFunction", 9), {},
    ]  # fmt: skip
    path = tmp_path / "jax.json"
    path.write_text(json.dumps({"displayTimeUnit": "ns", "metadata": {}, "traceEvents": events}))
    run = opened(path)
    assert run.meta["producer"] == "JAX profiler"
    assert kernels(run).select("name", "dur", "track").row(0) == ("fusion_3", 2250, "gpu0/Stream #20(Kernel)")
    assert kernels(run).height == 1


@pytest.mark.parametrize("indent", [None, 4])
def test_a_copy_called_unknown_gives_the_same(printed: Path, tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "unknown"
    path.write_text(json.dumps(json.loads(printed.read_text()), indent=indent))
    again, run = opened(path), opened(printed)
    order = ["t", "dur", "name"]
    assert again.events.sort(order).equals(run.events.sort(order))


def test_each_input_has_one_loader(printed: Path, tmp_path: Path) -> None:
    lines = tmp_path / "events.jsonl"
    lines.write_text(lines_of([event(), event()]))
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps([event(args={"a": [1]}), event()]))
    claims = {path.name: find_loaders(Source.from_path(path).head) for path in (printed, lines, bare)}
    assert claims == {
        printed.name: [trace], "events.jsonl": [jsonl], "bare.json": [trace],
    }  # fmt: skip


CLOSED = re.compile(rb'\n  \{\n    "ph": "X",(?:(?!\n  [{}]).)*\n  \}', re.DOTALL)


def test_a_cut_at_any_byte_keeps_every_whole_event(tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    write(whole, 0.0)
    raw = whole.read_bytes()[:12_000]
    path = tmp_path / "cut.json"
    for size in range(1_000, len(raw), 131):
        path.write_bytes(raw[:size])
        source = Source.from_path(path)
        closed = len(CLOSED.findall(raw[:size]))
        try:
            read = trace._read(source)
            run = trace.load(Source.from_path(path))[0]
        except UnreadableError:
            assert closed < 2
            continue
        assert read.truncated and run.log.lost_data
        assert read.complete.rows.height == closed, size


def test_a_damaged_gzip_is_read_up_to_its_damage(printed: Path, tmp_path: Path) -> None:
    """The line scan gives up on it; the parser takes what the stream still holds, and says so."""
    raw, path = printed.read_bytes(), tmp_path / "trace.json.gz"
    packed, whole = gzip.compress(raw), opened(printed).log.retained
    path.write_bytes(packed[: len(packed) * 2 // 3])
    cut = opened(path)
    assert whole // 2 < cut.log.retained < whole and cut.meta["truncated"]
    path.write_bytes(packed[:-8] + bytes(4) + packed[-4:])
    wrong_sum = opened(path)
    assert wrong_sum.log.retained == whole
    assert all(any(n.id == "gzip_damaged" for n in run.log.notices) for run in (cut, wrong_sum))
    path.write_bytes(gzip.compress(raw[:1000]) + gzip.compress(raw[1000:]))
    assert opened(path).log.retained == whole


def test_a_single_event_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "k", "cat": "kernel", "ts": 1, "dur": 2}]}')
    assert opened(path).events["dur"].to_list() == [2000]
    path.write_text('{"traceEvents": []}')
    with pytest.raises(UnreadableError, match="no readable list of trace events"):
        trace.load(Source.from_path(path))


def test_cut_lines_and_cut_gzip(tmp_path: Path) -> None:
    raw = lines_of([event(ts=i) for i in range(50)]).encode()
    path = tmp_path / "cut.jsonl"
    for size in range(5, len(raw), 397):
        path.write_bytes(raw[:size])
        try:
            run = jsonl.load(Source.from_path(path))[0]
        except UnreadableError:
            assert b"\n" not in raw[:size]
            continue
        assert run.events.height - raw[:size].count(b"\n") in (0, 1)
    zipped = gzip.compress(raw)
    path.write_bytes(zipped[: len(zipped) // 2])
    run = jsonl.load(Source.from_path(path))[0]
    assert 0 < run.events.height < 50 and run.log.lost_data
