"""Graphs of a watched program: their nodes by a played driver, their owners, and replays as steps."""

import ctypes
import gzip
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import polars as pl
import pytest

from capture.load_runs import load
from capture.record import patch_torch, process_notes, window_gate
from capture.record.captured_graphs import CapturedGraphs, GraphNodes
from capture.record.launch_order import (
    UNKNOWN_REPLAY,
    LaunchOrder,
    assign_replay_owners,
    build_launch_order,
    is_same_kernel,
)
from capture.record.patches import Patches
from capture.record.profiler_windows import LeafWork, ProfilerWindow, WindowBudget
from capture.record.program_recorder import ProgramRecorder
from tests.conftest import shared

pytest.importorskip("torch")
import torch

from tests.capture.record.tiny import Tiny

STREAM = 77
KERNEL, MEMCPY, MEMSET, HOST, CHILD = 0, 1, 2, 3, 4


@dataclass
class Driver:
    """A driver with one graph that is captured: its nodes are (type, name)."""

    nodes: list[tuple[int, str]] = field(default_factory=list)
    capturing: bool = True
    by_kern: bool = False  # functions of newer runtimes are told as kernels of a library
    names: list[Any] = field(default_factory=list)  # what pointers lead to

    def cuStreamGetCaptureInfo_v2(  # noqa: N802
        self, stream: Any, status: Any, number: Any, graph: Any, before: None, count: None
    ) -> int:
        assert stream.value == STREAM and before is None and count is None
        status._obj.value, graph._obj.value = (1, 5) if self.capturing else (0, None)
        return 0

    def cuGraphGetNodes(self, graph: Any, nodes: Any, count: Any) -> int:  # noqa: N802
        assert graph.value == 5
        if nodes is None:
            count._obj.value = len(self.nodes)
        else:
            for i in range(min(count._obj.value, len(self.nodes))):
                nodes[i] = 1000 + i
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:  # noqa: N802
        kind._obj.value = self.nodes[node.value - 1000][0]
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node: Any, params: Any) -> int:  # noqa: N802
        setattr(params._obj, "kern" if self.by_kern else "func", node.value)
        return 0

    def cuFuncGetName(self, name: Any, function: Any) -> int:  # noqa: N802
        text = self.nodes[function.value - 1000][1]
        name._obj.value = text.encode()
        return 0 if text else 1

    cuKernelGetName = cuFuncGetName  # noqa: N815


def test_the_driver_is_asked_for_nodes_and_names() -> None:
    driver = Driver([(KERNEL, "_Z4gemvPf"), (MEMCPY, ""), (HOST, ""), (MEMSET, ""), (KERNEL, "triton_0")])
    nodes = GraphNodes(driver)
    assert nodes.count_nodes(STREAM) == 5
    assert nodes.list_names(STREAM) == ["_Z4gemvPf", "Memcpy", None, "Memset", "triton_0"]
    driver.by_kern = True
    assert nodes.list_names(STREAM) == ["_Z4gemvPf", "Memcpy", None, "Memset", "triton_0"]


@pytest.mark.parametrize("nodes", [[(CHILD, "")], [(KERNEL, "")]])
def test_what_a_driver_does_not_tell_is_not_known(nodes: list[tuple[int, str]]) -> None:
    assert GraphNodes(Driver(nodes)).list_names(STREAM) is None
    assert GraphNodes(Driver(nodes, capturing=False)).count_nodes(STREAM) is None


def test_the_parameters_of_a_node_lie_as_the_driver_writes_them() -> None:
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h: func at 0, seven unsigned, pointers from 40 on, kern at 56."""
    from capture.record.captured_graphs import _KernelParams

    assert (_KernelParams.func.offset, _KernelParams.sizes.offset) == (0, 8)
    assert (_KernelParams.arguments.offset, _KernelParams.kern.offset) == (40, 56)
    assert ctypes.sizeof(_KernelParams) >= 72


@pytest.mark.parametrize(
    ("stated", "seen", "same"),
    [
        ("triton_0", "triton_0", True),
        ("triton_0", "triton_1", False),
        ("_Z4gemvPfS_", "gemv(float*, float*)", True),
        ("_ZN2at6native4normIfEEvPT_", "void at::native::norm<float>(float*)", True),
        ("_ZN2at6native4normIfEEvPT_", "void at::native::layer_norm<float>(float*)", False),
        ("Memcpy", "Memcpy DtoD (Device -> Device)", True),
        ("Memset", "Memcpy DtoD (Device -> Device)", False),
    ],
)
def test_a_linkers_name_is_that_of_its_kernel(stated: str, seen: str, same: bool) -> None:
    assert is_same_kernel(stated, seen) is same


def row(name: str, at: int, launch: int = 9, owner: str | None = "wrong") -> LeafWork:
    return LeafWork(name, at, 5, owner, "", None, "gpu", "gpu 0 stream 7", launch)


def test_orders_that_fit_alike_and_do_not_agree_tell_nothing() -> None:
    one, other = (LaunchOrder((("a", x), ("b", x))) for x in ("layer.0", "layer.1"))
    rows = [row("a", 1), row("b", 2)]
    assert [r.owner for r in assign_replay_owners(ProfilerWindow(rows), [one, one]).rows] == ["layer.0"] * 2
    unknown = assign_replay_owners(ProfilerWindow(rows), [one, other])
    assert [r.owner for r in unknown.rows] == [None] * 2 and unknown.problems == {UNKNOWN_REPLAY: 1}


def test_an_order_is_learned_from_a_whole_window_alone() -> None:
    rows = [row("b", 1, launch=8, owner="y"), row("a", 5, launch=7, owner="x")]
    assert build_launch_order(ProfilerWindow(rows)) == LaunchOrder((("a", "x"), ("b", "y")))
    assert build_launch_order(ProfilerWindow(rows, {"kernels that started before their launch": 1})) is None
    assert build_launch_order(ProfilerWindow([])) is None


# captures and replays of real engines


@dataclass(frozen=True)
class Sample:
    """What two real traces tell: a capture, and a step that replays its graph."""

    folder: Path

    def events(self, name: str) -> list[dict[str, Any]]:
        with gzip.open(self.folder / name) as file:
            events: list[dict[str, Any]] = json.load(file)["traceEvents"]
        return events

    def played(self) -> Iterator[tuple[str, Any]]:
        """Launches, and modules as they begin and end, in the order of the capture."""
        events = self.events("capture_bs_32_rank0.json.gz")
        calls = [e for e in events if e.get("cat") == "cuda_runtime"]
        borders = [e["ts"] for e in calls if e["name"].endswith(("StreamBeginCapture", "StreamEndCapture"))]
        first, last = sorted(borders)
        moments = [
            (e["ts"], 1, "launch", e["args"]["kernel"])
            for e in calls
            if "LaunchKernel" in e["name"] and first < e["ts"] < last
        ]
        scopes = [e for e in events if e.get("cat") == "python_function" and first < e["ts"] < last]
        for e in scopes:
            if e["name"].startswith("nn.Module: "):
                moments += [(e["ts"], 0, "enter", e["name"]), (e["ts"] + e["dur"], 2, "leave", e["name"])]
        for _, _, what, about in sorted(moments, key=lambda m: (m[0], m[1])):
            yield what, about

    def replay(self) -> list[LeafWork]:
        """The kernels of the graph that the step replays."""
        events = self.events("execution.json.gz")
        launch = next(e["args"]["correlation"] for e in events if str(e["name"]).endswith("GraphLaunch"))
        kernels = [e for e in events if e.get("cat") == "kernel" and e["args"]["correlation"] == launch]
        return [row(e["name"], round(1000 * e["ts"])) for e in kernels]


class Module:
    """Stands for a module of the engine."""

    def __init__(self, name: str) -> None:
        self.name = name


def captured(sample: Sample) -> tuple[LaunchOrder | None, list[str | None]]:
    """The order that is learned of a capture, and the innermost module at each launch by a plain stack."""
    driver, graph, stack, truth = Driver(), Module("graph"), list[str](), list[str | None]()
    fake = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=STREAM)))
    graphs = CapturedGraphs(fake, GraphNodes(driver))
    graphs.begin_capture(graph)
    for what, about in sample.played():
        if what == "launch":
            driver.nodes.append((KERNEL, about))
            truth.append(stack[-1] if stack else None)
            continue
        graphs.mark_boundary(stack[-1] if stack else None)
        stack.append(about) if what == "enter" else stack.pop()
    graphs.end_capture(graph)
    known = graphs.find_record(graph)
    assert known is not None and not graphs.is_capturing
    return known.order, truth


@pytest.mark.parametrize(("name", "kernels"), [("sglang_qwen3_8b_decode", 544), ("vllm_gptoss_decode", 421)])
def test_a_real_replay_has_the_owners_of_its_capture(name: str, kernels: int) -> None:
    sample = Sample(shared(f"samples/serving/{name}"))
    order, truth = captured(sample)
    assert order is not None and len(order.kernels) == kernels
    actual = assign_replay_owners(ProfilerWindow(sample.replay()), [order])
    assert actual.problems == {}
    assert [r.owner for r in actual.rows] == truth
    named = [owner for owner in truth if owner]
    assert len(named) > 0.9 * kernels
    if name.startswith("sglang"):
        counts = {kind: sum(f": {kind}_" in owner for owner in named) for kind in ("SiluAndMul", "RMSNorm")}
        assert counts == {
            "SiluAndMul": 36,
            "RMSNorm": 145,
        }  # 1 in each of 36 layers; 4 and one
        norms = [r for r in actual.rows if "norm" in r.name.lower()]
        assert norms and all("RMSNorm" in (r.owner or "") for r in norms)


def test_a_replay_of_another_graph_is_left_alone() -> None:
    folders = ("sglang_qwen3_8b_decode", "vllm_gptoss_decode")
    one, other = (Sample(shared(f"samples/serving/{name}")) for name in folders)
    order, _ = captured(one)
    assert order is not None
    actual = assign_replay_owners(ProfilerWindow(other.replay()), [order])
    assert {r.owner for r in actual.rows} == {None} and actual.problems == {UNKNOWN_REPLAY: 1}
    cut = assign_replay_owners(ProfilerWindow(one.replay()[1:]), [order])
    assert {r.owner for r in cut.rows} == {None}


# a watched program


class PlayedProfiler:
    """Sees the kernels of the graph, under one launch, each time it is open."""

    overhead_ns = 0

    def __init__(self, *, gpu: bool) -> None:
        pass

    def start(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def stop(self) -> ProfilerWindow:
        return ProfilerWindow([row(name, 100 + i, owner=None) for i, name in enumerate(GRAPH)])


OF_A_LAYER = ("norm", "q", "k", "v", "o", "mlp")
GRAPH = ["embed_k", *(f"{name}_{layer}" for layer in range(3) for name in OF_A_LAYER), "head"]


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgramRecorder]:
    monkeypatch.setenv(process_notes.OUT_VARIABLE, str(tmp_path / "out.jsonl"))
    monkeypatch.setenv("TRACETUI_RUN", "")  # set by the recording, and taken back with the test
    monkeypatch.setattr(window_gate, "WindowProfiler", PlayedProfiler)
    monkeypatch.setattr(window_gate, "WindowBudget", lambda budget: WindowBudget(1.0, warm_up=0))
    monkeypatch.setattr(window_gate, "MIN_WINDOW_SHARE", 1.0)
    monkeypatch.setattr("capture.record.process_recording.has_open_emitter", lambda: False)
    watcher = ProgramRecorder(torch)
    fake = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=STREAM)))
    watcher.shared.graphs = CapturedGraphs(fake, GraphNodes(Driver()))
    yield watcher
    watcher.close()


def called(watcher: ProgramRecorder, driver: Driver, model: Tiny) -> None:
    """The modules of the model are called as its forward calls them, and launch their kernels."""
    outer = watcher.enter_module(model, (), {"input_ids": torch.zeros(2, 1, dtype=torch.int64)})
    parts: list[tuple[Any, str]] = [(model.embed, "embed_k")]
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, torch.nn.Module)
        attention: Any = layer.self_attn
        inner = [(getattr(attention, f"{x}_proj"), f"{x}_{number}") for x in ("q", "k", "v", "o")]
        parts += [(layer.norm, f"norm_{number}"), *inner, (layer.mlp, f"mlp_{number}")]
    for module, kernel in [*parts, (model.lm_head, "head")]:
        call = watcher.enter_module(module, (), {})
        driver.nodes.append((KERNEL, kernel))
        watcher.leave(call)
    watcher.leave(outer)


def test_replays_are_steps_with_the_modules_of_their_capture(
    watcher: ProgramRecorder, tmp_path: Path
) -> None:
    model, graph, graphs = Tiny(), Module("graph"), watcher.shared.graphs
    driver: Any = graphs._nodes._driver  # type: ignore[union-attr]
    called(watcher, driver, model)  # as engines warm up
    driver.nodes.clear()
    graphs.begin_capture(graph)
    called(watcher, driver, model)
    graphs.end_capture(graph)
    for _ in range(5):
        watcher.leave(watcher.enter_replay(graph))
    watcher.close()
    (run,) = load(tmp_path / "out.jsonl", cache=False)
    steps = run.events.filter(pl.col("kind") == "step")
    assert steps.height == 2 + 5  # the call to warm up, the capture, and the replays
    replays = sorted(steps["step"])[2:]
    rows = run.events.filter((pl.col("lens") == "gpu") & (pl.col("kind") == "kernel"))
    rows = rows.filter(pl.col("step").is_in(replays))
    paths = dict(rows.select(pl.col("name", "path").cast(pl.String)).unique().iter_rows())
    assert set(paths) == set(GRAPH)
    assert paths["q_1"] == "layers / 1 / self_attn / q_proj / q_1"
    assert paths["mlp_2"] == "layers / 2 / mlp / mlp_2" and paths["head"] == "lm_head / head"
    actual = rows.filter(pl.col("name") == "norm_0")
    assert set(actual["layer"]) == {0} and actual["step"].n_unique() == actual.height >= 4


def test_a_graph_that_nobody_saw_captured_is_no_step(watcher: ProgramRecorder, tmp_path: Path) -> None:
    model = Tiny()
    called(watcher, Driver(), model)
    for _ in range(5):
        watcher.leave(watcher.enter_replay(Module("unseen")))
    watcher.close()
    (run,) = load(tmp_path / "out.jsonl", cache=False)
    assert run.events.filter(pl.col("kind") == "step").height == 1
    rows = run.events.filter((pl.col("lens") == "gpu") & (pl.col("kind") == "kernel"))
    assert set(rows["path"].cast(pl.String)) <= set(GRAPH)


def test_another_thread_has_no_part_in_a_capture(watcher: ProgramRecorder) -> None:
    graphs, graph = watcher.shared.graphs, Module("graph")
    driver: Any = graphs._nodes._driver  # type: ignore[union-attr]
    graphs.begin_capture(graph)
    driver.nodes.append((KERNEL, "a"))
    thread = threading.Thread(
        target=lambda: (graphs.enter_module(Module("other")), graphs.mark_boundary("other"))
    )
    thread.start()
    thread.join()
    graphs.mark_boundary("mine")
    graphs.end_capture(graph)
    known = graphs.find_record(graph)
    assert known is not None and known.order == LaunchOrder((("a", "mine"),)) and known.root() is None


def test_a_capture_that_another_thread_ends_is_over_and_unknown(watcher: ProgramRecorder) -> None:
    graphs, graph, model = watcher.shared.graphs, Module("graph"), Tiny()
    driver: Any = graphs._nodes._driver  # type: ignore[union-attr]
    graphs.begin_capture(graph)
    called(watcher, driver, model)
    thread = threading.Thread(target=graphs.end_capture, args=(graph,))
    thread.start()
    thread.join()
    known = graphs.find_record(graph)
    assert not graphs.is_capturing and known is not None and known.order is None
    graphs.begin_capture(again := Module("again"))
    assert graphs.is_capturing and graphs.find_record(again) is not None, "the next capture is seen"


class PlayedGraph:
    """A graph that says what is done with it."""

    said: ClassVar[list[Any]] = []

    def capture_begin(self, pool: Any = None, **mode: str) -> None:
        self.said.append(("begin", pool, mode))

    def capture_end(self) -> None:
        self.said.append("end")

    def replay(self) -> str:
        self.said.append("replay")
        if self.said.count("replay") > 1:
            raise RuntimeError("the device is lost")
        return "its own"


def test_a_graph_works_as_it_would_alone(watcher: ProgramRecorder) -> None:
    played = SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=PlayedGraph))
    patch_torch._wrap_captures(played, watcher, Patches())
    graph = PlayedGraph()
    driver: Any = watcher.shared.graphs._nodes._driver  # type: ignore[union-attr]
    graph.capture_begin(7, capture_error_mode="global")
    called(watcher, driver, Tiny())
    graph.capture_end()
    known = watcher.shared.graphs.find_record(graph)
    assert known is not None and known.order is not None and len(known.order.kernels) == len(GRAPH)
    assert graph.replay() == "its own"
    with pytest.raises(RuntimeError, match="the device is lost"):
        graph.replay()
    assert PlayedGraph.said == [("begin", 7, {"capture_error_mode": "global"}), "end", "replay", "replay"]
    assert not watcher.is_off


def test_a_driver_is_asked_only_of_a_torch_for_cuda() -> None:
    assert GraphNodes.from_torch(SimpleNamespace(version=SimpleNamespace(cuda=None, hip="6.2"))) is None
    assert GraphNodes.from_torch(torch) is None  # of this machine
