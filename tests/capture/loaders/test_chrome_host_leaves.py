"""The host ops that represent the work of a trace without a device."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders.chrome.host_leaves import classify_cpu_op, select_working_ops
from capture.loaders.chrome.trace_metadata import _is_channels_last
from tracetui.analysis.time.fitness import judge_fitness

WORKING = {
    "a product in its wrappers": (
        [("aten::linear", 0, 40), ("aten::t", 1, 4), ("aten::matmul", 10, 29), ("aten::mm", 11, 27),
         ("aten::resolve_conj", 12, 1), ("aten::silu", 60, 10)],
        ["aten::mm", "aten::silu"],
    ),
    "a wrapper that nothing works in": ([("aten::linear", 0, 40), ("aten::t", 1, 4)], ["aten::linear"]),
    "a conversion that had nothing to do": ([("aten::to", 0, 4), ("aten::silu", 5, 5)], ["aten::silu"]),
    "an op of an engine in Python around its kernel": (
        [("vllm::unified_attention", 0, 40), ("_C::attention", 5, 9)], ["_C::attention"],
    ),
    "work that begins with the work it calls": (
        [("aten::mm", 0, 30), ("_C::attention", 0, 40)], ["_C::attention"],
    ),
    "a scope of the user's around ops": ([("mine", 0, 40), ("aten::mm", 5, 9)], ["aten::mm"]),
    "a scope of the user's alone": ([("mine", 0, 40), ("aten::mm", 50, 9)], ["mine", "aten::mm"]),
}  # fmt: skip


@pytest.mark.parametrize(("ops", "working"), WORKING.values(), ids=WORKING)
def test_working_ops_are_the_outermost_that_do_work(
    ops: list[tuple[str, int, int]], working: list[str]
) -> None:
    rows = pl.DataFrame(ops, schema=["name", "t", "dur"], orient="row")
    parts = pl.Series([classify_cpu_op(name) for name in rows["name"]])
    threads = pl.concat([rows.with_columns(part=parts, thread=pl.lit(thread)) for thread in (1, 2)])
    assert select_working_ops(threads)["name"].to_list() == working * 2


@pytest.mark.parametrize(("is_waited_for", "steps"), [(True, 2), (False, 0)])
def test_annotations_that_only_start_the_work_are_no_steps(
    tmp_path: Path, is_waited_for: bool, steps: int
) -> None:
    """XLA returns before the work is done: a step of 20 µs around the call says nothing of its 500 µs."""
    events = []
    for number in range(2):
        t = number * 1000 if is_waited_for else number * 30
        dur = 900 if is_waited_for else 20
        events += [
            {
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": t,
                "dur": dur,
                "name": "train",
                "args": {"step_num": number},
            },
            {"ph": "X", "pid": 1, "tid": 2, "ts": number * 1000 + 300, "dur": 500, "name": "dot.1"},
            {"ph": "X", "pid": 1, "tid": 2, "ts": number * 1000 + 799, "dur": 1, "name": "end: dot.1"},
        ]
    names = {1: "python", 2: "tf_XLAPjRtCpuClient/1"}
    events += [
        {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in names.items()
    ]
    events.append({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}})
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    (run,) = load(file, cache=False)
    assert run.meta["producer"] == "XLA profiler"
    assert (run.events["kind"] == "step").sum() == steps
    assert any(notice.id == "dispatch_steps" for notice in run.log.notices) is not is_waited_for
    assert run.events.filter(kind="kernel")["dur"].sum() == 2 * 500_000


def test_steps_in_which_none_of_the_started_work_ran_are_no_steps(tmp_path: Path) -> None:
    """Every third step of JAX waits: in it runs what three started, as in a recording of JAX 0.10."""
    events = []
    for number in range(6):
        waits, t = number % 3 == 2, 3000 * (number // 3) + 30 * (number % 3)
        dur = 2800 if waits else 20
        step = {"ts": t, "dur": dur, "name": "train", "tid": 1, "args": {"step_num": number}}
        start = {"ts": t + 1, "dur": 5, "name": "PjitFunction(step)", "tid": 1}
        runs = [
            {"ts": t + 100 + 800 * at, "dur": dur, "name": name, "tid": 2}
            for at in range(3 * waits)
            for name, dur in (("dot.1", 500), ("end: dot.1", 1))
        ]
        events += [{"ph": "X", "pid": 1, **event} for event in (step, start, *runs)]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    (run,) = load(file, cache=False)
    assert (run.events["kind"] == "step").sum() == 0
    (note,) = (notice for notice in run.log.notices if notice.id == "dispatch_steps")
    assert note.message.startswith("4 of 6 annotated steps ended before their work ran")
    assert judge_fitness(run).flaws[0].text == "4 of 6 annotated steps ended before their work ran"


@pytest.mark.parametrize("overlap", [0, 40])
def test_steps_that_run_at_once_are_not_fit(overlap: int, tmp_path: Path) -> None:
    """As onnxruntime writes the runs of two threads in one session: nodes do not say whose they are."""
    begin = {"name": "session_initialization", "cat": "Session", "tid": 0, "ts": 0, "dur": 9}
    events = [{"ph": "X", "pid": 1, "args": {}, **begin}]
    for number in range(3):
        t = 1000 + number * (100 - overlap)
        run = {"name": "model_run", "cat": "Session", "tid": number % 2, "ts": t, "dur": 100}
        node = {"name": "a_kernel_time", "cat": "Node", "tid": number % 2, "ts": t + 50, "dur": 20}
        events += [{"ph": "X", "pid": 1, "args": {}, **event} for event in (run, node)]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(events))
    (run,) = load(file, cache=False)
    texts = [flaw.text for flaw in judge_fitness(run).flaws]
    assert texts == ["2 of 3 steps begin before another one ends"] * bool(overlap)


PRODUCTS = ("aten::addmm", "aten::mm", "aten::bmm", "aten::_addmm_activation", "aten::mkldnn_rnn_layer")


def test_products_within_layers_that_torch_writes_itself_are_the_profilers_own_sums(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    modules = [torch.nn.GRU(32, 32), torch.nn.LSTM(32, 32), torch.nn.RNN(32, 32), layer]
    x = torch.randn(4, 8, 32)
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        for module in modules:
            module(x)
        torch.nn.GRUCell(32, 32)(x[0])
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    (run,) = load(tmp_path / "trace.json", cache=False)
    rows = run.events.filter(pl.col("kind") == "kernel", pl.col("name").cast(pl.String).is_in(PRODUCTS))
    sums = dict(rows.group_by(pl.col("name").cast(pl.String)).agg(pl.len()).iter_rows())
    theirs = {e.key: e.count for e in prof.key_averages() if e.key in PRODUCTS}
    assert sums == theirs and len(theirs) >= 4


@pytest.mark.parametrize("reader", ["compiled", "lenient"])
@pytest.mark.parametrize("kind", ["linear", "conv"])
@pytest.mark.parametrize("has_shapes", [True, False])
def test_autograd_is_on_where_torch_numbers_its_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_shapes: bool, kind: str, reader: str
) -> None:
    torch = pytest.importorskip("torch")
    if reader == "lenient":
        monkeypatch.setenv("TRACETUI_NO_COMPILED", "1")
    module, x = {
        "linear": (torch.nn.Linear(8, 8), torch.randn(2, 8)),
        "conv": (torch.nn.Conv2d(3, 8, 3), torch.randn(1, 3, 8, 8)),
    }[kind]
    for mode, expected in ((torch.no_grad, False), (torch.inference_mode, False), (torch.enable_grad, True)):
        with mode(), torch.profiler.profile(record_shapes=has_shapes) as prof:
            module(x)
            module(x)
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
        (run,) = load(tmp_path / "trace.json", cache=False)
        assert run.meta.get("autograd") == (expected if has_shapes else None)


@pytest.mark.parametrize("reader", ["compiled", "lenient"])
@pytest.mark.parametrize(
    ("sizes", "last", "expected"),
    [
        ((1, 3, 8, 6), (), "channels first"), ((1, 3, 8, 6), ("images",), "channels last"),
        ((1, 3, 8, 6), ("weights",), "channels last"), ((1, 1, 8, 6), (), None),
    ],
    ids=["neither", "images", "weights", "one channel lies in both orders"],
)  # fmt: skip
def test_images_lie_in_memory_as_the_strides_of_convolutions_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, ...],
    last: tuple[str, ...],
    expected: str | None,
    reader: str,
) -> None:
    torch = pytest.importorskip("torch")
    if reader == "lenient":
        monkeypatch.setenv("TRACETUI_NO_COMPILED", "1")
    module, x = torch.nn.Conv2d(sizes[1], 4, 3), torch.randn(*sizes)
    x = x.contiguous(memory_format=torch.channels_last) if "images" in last else x
    module = module.to(memory_format=torch.channels_last) if "weights" in last else module
    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as prof:
        module(x)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    has_strides = "Input Strides" in (tmp_path / "trace.json").read_text()  # torch from 2.13 on
    (run,) = load(tmp_path / "trace.json", cache=False)
    assert run.meta.get("memory format") == (expected if has_strides else None)


@pytest.mark.parametrize(
    ("dims", "strides"),
    [
        ([[1, 2, [0], 10**15]] * 2, [[1] * 4] * 2), ({}, []), ([], {}), (5, None), ([[1, 2, 3, 4]], [[1]]),
        ([["a", "b", "c", "d"]] * 2, [[1, 2, 3, 4]] * 2), ([[1, 2, 3.5, 4]] * 2, [[1, 2, 3, 4]] * 2),
    ],
    ids=["lists", "objects", "object", "number", "one", "texts", "fractions"],
)  # fmt: skip
def test_operands_of_a_convolution_may_be_anything(dims: object, strides: object) -> None:
    """A list times a large number would take all memory."""
    assert _is_channels_last(dims, strides) is None


@pytest.mark.parametrize("reader", ["compiled", "lenient"])
@pytest.mark.parametrize("counts", [(1,), (3,), (1, 3)])
def test_threads_of_attention_on_a_processor_are_torchs_own_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], reader: str
) -> None:
    torch = pytest.importorskip("torch")
    if reader == "lenient":
        monkeypatch.setenv("TRACETUI_NO_COMPILED", "1")
    before, x = torch.get_num_threads(), torch.randn(1, 4, 8, 16)
    try:
        with (
            torch.no_grad(),
            torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
            ) as prof,
        ):
            for count in counts:
                torch.set_num_threads(count)
                torch.nn.functional.scaled_dot_product_attention(x, x, x)
                torch.empty(7, 5)
    finally:
        torch.set_num_threads(before)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    (run,) = load(tmp_path / "trace.json", cache=False)
    assert run.meta.get("threads") == (counts[0] if len(counts) == 1 else None)


@pytest.mark.parametrize(
    ("sequence", "other", "has_autograd"),
    [({"Sequence number": 4}, "aten::add", True), ({}, "aten::add", False),
     ({}, "## Call CompiledFxGraph fabc ##", None),
     ({"Sequence number": 4}, "Torch-Compiled Region: 0/0", True)],
)  # fmt: skip
def test_autograd_of_a_compiled_program_is_unknown_without_a_product_that_it_notes(
    sequence: dict[str, int], other: str, has_autograd: bool | None, tmp_path: Path
) -> None:
    """A compiled training was said to have no autograd."""
    times = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "dur": 5}
    product = {"name": "aten::mm", "ts": 1, "args": {"Input Dims": [[2, 3], [3, 4]], **sequence}}
    events = [times | product, times | {"name": other, "ts": 10, "args": {}}]
    (path := tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (run,) = load(path, cache=False)
    assert run.meta.get("autograd") is has_autograd
