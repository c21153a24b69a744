"""Proton, rocprof and vLLM files: figures against a plain reading or numbers written down by hand."""

import csv
import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.loaders import find_loaders, proton
from capture.run import Run
from capture.source import Head, Source
from tests.capture.loaders._msgpack import pack
from tests.conftest import FIXTURES, document, shared


def opened(path: Path) -> Run:
    source = Source.from_path(path)
    (loader,) = find_loaders(source.head)
    (run,) = loader.load(source)
    return run


def kernels(run: Run) -> pl.DataFrame:
    return run.events.filter(pl.col("kind") == "kernel").with_columns(pl.col(pl.Categorical).cast(pl.String))


@pytest.mark.parametrize("name", ["proton/two_devices.hatchet", "samples/proton/cuda.hatchet"])
def test_proton_equals_a_plain_reading(name: str) -> None:
    path = document(name)
    tree, devices = json.loads(path.read_text())
    stated = [(c["frame"]["name"], c["metrics"]) for c in tree["children"]]
    run = opened(path)
    actual = kernels(run)
    assert actual["name"].to_list() == [name for name, _ in stated]
    assert actual["dur"].to_list() == [m["time (ns)"] for _, m in stated]
    assert actual["count"].to_list() == [m["count"] for _, m in stated] == [10, 1]
    assert actual["flops"].to_list() == [m["flops8"] for _, m in stated]
    assert actual["track"].to_list() == ["gpu1", "gpu0"]
    assert run.tables["devices"]["sms"].to_list() == [d["num_sms"] for d in devices["CUDA"].values()]
    assert not run.has("t")


def test_proton_paths_flops_and_hidden_subtrees() -> None:
    run = opened(FIXTURES / "proton/scopes.hatchet")
    (row,) = kernels(run).iter_rows(named=True)
    assert (row["name"], row["dur"], row["count"], row["flops"], row["bytes"]) == (
        "matmul_kernel",
        4000,
        2,
        1e7,
        512,
    )
    assert (row["path"], row["layer"], row["track"]) == ("layers.3", 3, "gpu0")


@pytest.mark.parametrize("name", ["scopes", "two_devices"])
def test_proton_gives_the_same_in_both_of_its_forms(name: str) -> None:
    packed, plain = (opened(FIXTURES / f"proton/{name}.{form}") for form in ("hatchet_msgpack", "hatchet"))
    assert_frame_equal(packed.events, plain.events, categorical_as_str=True)
    assert packed.meta == plain.meta and packed.log.read == plain.log.read
    assert_frame_equal(packed.tables["devices"], plain.tables["devices"])


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"\xa4name\xdf\xff\xff\xff\xff",  # a map of four billion
        b"\xa4name" + b"\x91" * 100_000,  # nested without end
        pack("ROOT") + pack({"metrics": 5}) + b"\xc7\x01\x05x",  # an extension
    ],
    ids=["cut", "huge", "deep", "odd"],
)
def test_a_packed_tree_that_is_none_is_refused_in_a_sentence(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x92\x83\xa5frame\x82" + tail + pack("time (ns)") * 2)
    with pytest.raises(UnreadableError) as actual:
        load(path, cache=False)
    assert "proton" in str(actual.value) or "damaged" in str(actual.value)
    assert "\n" not in str(actual.value)


def test_a_packed_tree_of_odd_types_keeps_what_is_plain(tmp_path: Path) -> None:
    metrics = {"time (ns)": 40, "count": 2, 7: 1, "flops16": [1, 2], "device_id": 3.5}
    node = {"frame": {"name": 5}, "metrics": metrics, "children": [4, {"frame": [], "metrics": []}]}
    path = tmp_path / "x"
    path.write_bytes(pack([{**node, "frame": {"name": "k"}}, {"CUDA": {0: {"arch": 90}}, 6: 7}]))
    (run,) = load(path, cache=False)
    assert run.events.select("name", "dur", "count").rows() == [("k", 40, 2)]


def test_other_hatchet_literals_are_not_protons() -> None:
    literal = b'[{"frame": {"name": "foo", "type": "function"}, "metrics": {"time": 1.0}, "children": []}]'
    assert not proton.sniff(Head(literal, True))


@pytest.mark.parametrize(
    ("name", "label"), [("kernel_trace", "Kernel_Name"), ("memory_copy_trace", "Direction")]
)
@pytest.mark.parametrize("folder", ["rocprof", "samples/rocprof"])
def test_rocprof_equals_a_plain_reading(folder: str, name: str, label: str) -> None:
    path = document(f"{folder}/{name}.csv")
    with path.open(newline="") as f:
        rows = list(csv.DictReader(f))
    run = opened(path)
    actual = kernels(run)
    assert actual["name"].to_list() == [r[label] for r in rows]
    assert actual["t"].to_list() == [int(r["Start_Timestamp"]) for r in rows]
    assert actual["dur"].to_list() == [int(r["End_Timestamp"]) - int(r["Start_Timestamp"]) for r in rows]
    assert run.log.read == len(rows) and run.log.dropped == 0


def test_rocprof_tracks_and_copies() -> None:
    tracks = kernels(opened(shared("samples/rocprof/kernel_trace.csv")))["track"]
    assert tracks.to_list() == ["gpu2/stream1"] * 4 + ["gpu2/stream2"] * 4
    copies = kernels(opened(shared("samples/rocprof/memory_copy_trace.csv")))
    assert set(copies["category"]) == {"copy"}


def test_rocprof_statistics_are_aggregates() -> None:
    actual = kernels(opened(FIXTURES / "rocprof/kernel_stats.csv"))
    columns = ("dur", "count", "min", "max", "std")
    assert [actual[c].to_list() for c in columns] == [[900, 600], [3, 2], [250, 290], [380, 310], [57, 10]]
    assert "t" not in actual.columns


def test_times_that_a_spreadsheet_rounded_are_none() -> None:
    run = opened(FIXTURES / "rocprof/timestamps.csv")
    assert kernels(run)["dur"].to_list() == [None, 2500]
    assert {n.id: n.count for n in run.log.notices} == {"mangled_times": 1, "bad_time": 1, "ragged_row": 1}
    assert (run.log.read, run.log.dropped) == (4, 2)


def test_rocprof_headers_are_known_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "rocpd.csv"
    path.write_text(
        "guid,kind,agent_id,queue_id,kernel_name,START_TIMESTAMP,end_timestamp\nx,K,Agent 4,1,k,5,9\n"
    )
    assert kernels(opened(path)).select("name", "dur", "track").row(0) == ("k", 4, "gpu4/queue1")


def test_counters_repeat_a_dispatch_but_not_its_time(tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    header = "Correlation_Id,Dispatch_Id,Agent_Id,Kernel_Name,Counter_Name,Counter_Value"
    path.write_text(
        f"{header},Start_Timestamp,End_Timestamp\n1,1,2,k,SQ_WAVES,16,100,150\n1,1,2,k,GRBM_COUNT,9,100,150\n2,2,2,k,SQ_WAVES,16,200,260\n"
    )
    run = opened(path)
    assert kernels(run)["dur"].to_list() == [50, 60]
    assert run.tables["counters"]["counter_value"].to_list() == ["16", "9", "16"]


def test_rocprof_json() -> None:
    run = opened(FIXTURES / "rocprof/two_kernels.json")
    rows = run.events.select("kind", "name", "dur", "lens", "track").with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )
    assert list(rows.iter_rows()) == [
        ("kernel", "Cijk_Ailk_Bljk_BBS", 16157, "gpu", "gpu0/stream9"),
        ("kernel", "rms_norm(float*)", 10464, "gpu", "gpu0/queue3"),
        ("kernel", "MEMORY_COPY_HOST_TO_DEVICE", 101594, "gpu", "gpu0/copy"),
        ("span", "hipLaunchKernel", 2000, "host", "thread 7"),
    ]
    assert run.meta["device"] == "AMD Instinct MI300X" and run.log.dropped == 1


def test_vllm_layerwise() -> None:
    """Own times by hand: the root keeps 120.5 − 100.5 − 12 = 8 µs, self_attn nothing."""
    run = opened(FIXTURES / "vllm_layerwise/two_steps.json")
    actual = kernels(run).select("name", "dur", "step", "phase")
    assert sorted(actual.iter_rows()) == [
        ("LlamaForCausalLM", 8000, 0, "prefill"),
        ("flash_fwd_kernel", 20250, 0, "prefill"),
        ("flash_fwd_splitkv_kernel", 30000, 1, "decode"),
        ("nvjet_tst_128x256", 80250, 0, "prefill"),
        ("rms_norm_kernel", 12000, 0, "prefill"),
    ]
    attention = kernels(run).filter(pl.col("name") == "flash_fwd_kernel")
    assert attention["path"].item() == "LlamaForCausalLM / model.layers.0.self_attn"
    assert attention["layer"].item() == 0
    steps = run.events.filter(pl.col("kind") == "step")
    assert steps.select("step", "batch", "tokens").rows() == [(0, 4, None), (1, 4, 4)]
    assert (run.meta["model"], run.meta["prompt_tokens"], run.meta["batch"]) == ("example/tiny-llama", 128, 4)
    assert run.tables["summary"]["invocations"].to_list() == [1, 2, 1]
