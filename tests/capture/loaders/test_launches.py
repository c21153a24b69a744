"""How kernels were launched, against plain readings of the same files: the call, grid, block, registers …"""

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders._scan import load_scanner
from capture.loaders.chrome import compiled_reader
from capture.source import Source
from tests.bench._chrome_maker import write
from tests.capture.loaders.test_chrome_operator_links import by_both, kernel, kernels
from tests.capture.loaders.test_chrome_steps import annotation, launch, written
from tests.conftest import shared

FORM = ("grid", "block", "registers", "shared", "occupancy")
LAUNCH = ("launch", "launch_dur", "launcher")
HOST = ("cuda_runtime", "cuda_driver")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def stated(args: dict[str, Any]) -> tuple[Any, ...]:
    """What a kernel's arguments say of its form, as a plain reader would write it."""
    sizes = ["x".join(map(str, args[k])) if k in args else None for k in ("grid", "block")]
    return (
        *sizes, args.get("registers per thread"), args.get("shared memory"),
        args.get("est. achieved occupancy %"),
    )  # fmt: skip


def plain(path: Path) -> Iterator[tuple[Any, ...]]:
    """Start and form of each device row of a trace, start and duration of its call, by a plain parser."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=str)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    base = document["baseTimeNanoseconds"]
    calls = {e["args"]["correlation"]: e for e in reversed(events) if e["cat"] in HOST}
    for event in events:
        if event["cat"] in DEVICE:
            by = calls[event["args"]["correlation"]]
            form = stated(event["args"]) if event["cat"] == "kernel" else (None,) * 5
            yield ns(event["ts"]) + base, ns(by["ts"]) + base, ns(by["dur"]), *form


def ns(microseconds: str) -> int:
    whole, _, part = str(microseconds).partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0"))


@pytest.mark.corpus
@pytest.mark.parametrize(
    "sample",
    [
        "chrome_trace/bert-small-h100.json.gz",
        "chrome_trace/bert-small-mi300.json.gz",
        "chrome_trace/triton_example.json.gz",
        "serving/vllm_gptoss_decode/execution.json.gz",  # graph replays: one call for hundreds of kernels
    ],
)
def test_every_kernel_has_the_call_and_the_form_that_the_file_states(sample: str) -> None:
    path = shared(f"samples/{sample}")
    (run,) = load(path, cache=False)
    rows = kernels(run)
    missing = [pl.lit(None).alias(c) for c in FORM if c not in rows.columns]
    actual = rows.with_columns(missing).select("t", *LAUNCH[:2], *FORM).rows()
    assert sorted(actual, key=str) == sorted(plain(path), key=str)
    assert set(rows["launcher"]) <= set(run.events.filter(pl.col("lens") == "host")["track"])


def test_both_readers_of_printed_traces_give_the_same(tmp_path: Path) -> None:
    """The maker states 144 blocks of 128 threads, 32 registers, no shared memory, 9 %, calls of 3.5 µs."""
    path = tmp_path / "trace.json"
    write(path, 0.2)
    scanned, parsed = by_both(path)
    assert scanned.select(*LAUNCH, *FORM).equals(parsed.select(*LAUNCH, *FORM))
    assert set(scanned.select(FORM).rows()) == {("144x1x1", "128x1x1", 32, 0, 9.0)}
    assert set(scanned["launch_dur"]) == {3500} and set(scanned["launcher"]) == {"1234/1234"}
    assert set(scanned["t"] - scanned["launch"]) == {8000}


def test_what_is_no_form_is_left_out(tmp_path: Path) -> None:
    odd = {"grid": [1, "2", 3], "block": [], "registers per thread": -1, "shared memory": 1 << 40}
    event = kernel("k", 100, 5, None)
    run = written(tmp_path, event | {"args": odd | {"est. achieved occupancy %": "9"}})
    assert not {*FORM, *LAUNCH} & set(run.events.columns)


def test_a_kernel_without_its_call_has_no_launch(tmp_path: Path) -> None:
    host, gpu = launch(10, 1, 100)
    run = written(tmp_path, annotation("s", 0, 200), host, gpu, kernel("alone", 150, 5, None))
    assert kernels(run).select(LAUNCH).rows() == [(10_000, 1_000, "1/1"), (None, None, None)]


def test_every_kernel_of_an_nsys_file_equals_plain_sqlite() -> None:
    path = shared("samples/nsys/h100_2gpu_1s.sqlite")
    (run,) = load(path, cache=False)
    rows = kernels(run).filter(pl.col("lens") == "gpu")
    names = ("t", "launch", "launch_dur", "grid", "block", "registers", "shared")
    query = """
        SELECT k.start, r.start, r.end - r.start, k.gridX || 'x' || k.gridY || 'x' || k.gridZ,
               k.blockX || 'x' || k.blockY || 'x' || k.blockZ, k.registersPerThread,
               k.staticSharedMemory + k.dynamicSharedMemory
        FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
        ON r.correlationId = k.correlationId AND r.globalTid / 16777216 = k.globalPid / 16777216
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        expected = db.execute(query).fetchall()
    actual = rows.filter(pl.col("grid").is_not_null()).select(names).rows()
    assert sorted(actual, key=str) == sorted(expected, key=str)
    assert len({launch for _, launch, *_ in actual}) > 100


def annotate(path: str, *, ts: int) -> dict[str, Any]:
    """A kernel of a replayed graph whose node torch annotated with its module."""
    event = annotation("gemm", ts, 5, cat="kernel") | {"pid": 0, "tid": 7}
    return event | {"args": {"graph node id": ts, "module_fqn": path}}


def test_nodes_of_an_annotated_graph_have_their_module_layer_and_op(tmp_path: Path) -> None:
    modules = ["layers.3.attention.wq", "layers.3.feed_forward.w1", "norm", ""]
    run = written(tmp_path, *(annotate(module, ts=10 * at) for at, module in enumerate(modules, 1)))
    columns = (pl.col("path").cast(pl.String), "layer", pl.col("op").cast(pl.String))
    assert kernels(run).sort("t").select(columns).rows() == [
        ("layers.3.attention.wq", 3, "attn.q"), ("layers.3.feed_forward.w1", 3, "mlp.gate"),
        ("norm", None, "norm"), (None, None, None),
    ]  # fmt: skip


def test_the_annotated_sample_has_the_module_of_every_kernel() -> None:
    path = shared("samples/annotated_graph/annotated.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    expected = sorted(e["args"]["module_fqn"] for e in events if e.get("cat") == "kernel")
    (run,) = load(path, cache=False)
    assert len(expected) == 60
    assert sorted(kernels(run)["path"].drop_nulls().cast(pl.String)) == expected


QKV = {"module_fqn": "layers.3.self_attn", "name": "qkv_proj"}
MARKS = {  # what `mark_kernels` records for the node of a graph → path, layer and op that are expected of it
    1: ([QKV], "layers.3.self_attn / qkv_proj", 3, "attn.qkv"),
    2: (
        [{"str": "layers.4.mlp.down_proj"}],
        "layers.4.mlp.down_proj",
        4,
        "mlp.down",
    ),  # of a text, torch 2.13
    3: (["layers.5.mlp.gate_proj"], "layers.5.mlp.gate_proj", 5, "mlp.gate"),  # of neither text nor dict
    4: ([{"module_fqn": "layers.6.mlp"}, {"name": "down_proj"}], "layers.6.mlp / down_proj", 6, "mlp.down"),
    5: ([{"stream": 62}], None, None, None),
}
COLLECTIVE = {
    "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096, "dtype": "bfloat16",
    "Group size": 8,
}  # fmt: skip
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_marks_that_torch_writes_into_a_trace_are_paths_and_roles(tmp_path: Path) -> None:
    annotate_trace = pytest.importorskip("torch.cuda._annotate_cuda_graph_trace").annotate_trace
    events = [annotation("gemm", 10 * node, 5, cat="kernel") | {"pid": 0, "tid": 7} for node in MARKS]
    events = [e | {"args": {"graph node id": node}} for e, node in zip(events, MARKS, strict=True)]
    assert annotate_trace({"traceEvents": events}, {node: mark for node, (mark, *_) in MARKS.items()}) == 5
    columns = (pl.col("path").cast(pl.String), "layer", pl.col("op").cast(pl.String))
    run = written(tmp_path, *events)
    assert kernels(run).sort("t").select(columns).rows() == [tuple(known) for _, *known in MARKS.values()]


def test_a_name_in_the_arguments_of_another_kernel_is_no_path(tmp_path: Path) -> None:
    events = [kernel("gemm", 10, 5, None), kernel("gemm", 20, 5, None)]
    events = [e | {"args": {"name": "layers.1.mlp", "graph node id": 0}} for e in events]
    run = written(tmp_path, *events)
    assert "path" not in run.events.columns or not kernels(run)["path"].count()


def test_a_collective_states_its_elements_bytes_and_group(tmp_path: Path) -> None:
    columns = [pl.col(c).cast(pl.String) for c in ("shape", "dtype", "op")]
    expected = [("n=4096 bytes=8192 group=8", "bf16", "comm.all_reduce")]
    in_a_graph = {"graph node id": 1, "module_fqn": "layers.3.self_attn"}
    in_a_graph |= {key: str(value) for key, value in COLLECTIVE.items()}  # as torch's joiner writes them
    run = written(tmp_path, kernel(NCCL, 10, 5, None) | {"args": in_a_graph})
    assert kernels(run).select("layer", *columns).rows() == [(3, *expected[0])]

    path = tmp_path / "eager.json"
    path.write_text(json.dumps({"traceEvents": [kernel(NCCL, 10, 5, None) | {"args": COLLECTIVE}]}))
    if load_scanner() is not None:
        compiled_reader.read_document(Source.from_path(path))  # it is not refused
    for rows in by_both(path):
        assert rows.select(columns).rows() == expected
