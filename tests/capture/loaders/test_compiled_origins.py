"""Lines of compiled operations: excerpts of what torch 2.13 writes with TORCH_COMPILE_DEBUG=1."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run

NODES = {
    "cppCodeToPost": {
        "extern_kernels.addmm:1": ["addmm"],
        "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:2": [
            "view_1", "permute_1", "view_4", "_scaled_dot_product_flash_attention_for_cpu", "getitem_2",
        ],
        "extern_kernels.addmm:3": ["addmm_3"],
        "cpp_fused_gelu_0:4": ["mul_2", "mul", "add", "erf", "mul_1"],
    }
}  # fmt: skip
GRAPH = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[100, 64]", arg1_1: "i64[1, 32]"):
        # File: /home/me/model.py:8 in <listcomp>, code: q,k,v=[p(x) for p in (self.q_proj,self.k_proj,self.v_proj)]
        permute: "f32[64, 64]" = torch.ops.aten.permute.default(arg4_1, [1, 0]);  arg4_1 = None
        addmm: "f32[32, 64]" = torch.ops.aten.addmm.default(arg5_1, view, permute);  arg5_1 = view = permute = None
        view_1: "f32[1, 32, 64]" = torch.ops.aten.reshape.default(addmm, [1, 32, 64]);  addmm = None
        permute_1: "f32[1, 4, 32, 16]" = torch.ops.aten.permute.default(view_2, [0, 2, 1, 3]);  view_2 = None
        view_4: "f32[1, 32, 64]" = torch.ops.aten.reshape.default(addmm_1, [1, 32, 64]);  addmm_1 = None

        # File: /home/me/lib/../model.py:9 in forward, code: o=F.scaled_dot_product_attention(q,k,v,is_causal=True)
        _scaled_dot_product_flash_attention_for_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(permute_1, permute_3)
        getitem_2: "f32[1, 4, 32, 16]" = _scaled_dot_product_flash_attention_for_cpu[0]

        # File: /home/me/model.py:10 in forward, code: return self.o_proj(o)
        addmm_3: "f32[32, 64]" = torch.ops.aten.addmm.default(arg11_1, view_10, permute_7)

        # File: /home/me/model.py:16 in forward, code: hidden = F.gelu(hidden)
        mul: "f32[32, 64]" = torch.ops.aten.mul.Tensor(view_13, 0.5)
        mul_1: "f32[32, 64]" = torch.ops.aten.mul.Tensor(view_13, 0.7071067811865476);  view_13 = None
        erf: "f32[32, 64]" = torch.ops.aten.erf.default(mul_1);  mul_1 = None
        add: "f32[32, 64]" = torch.ops.aten.add.Tensor(erf, 1);  erf = None
        mul_2: "f32[32, 64]" = torch.ops.aten.mul.Tensor(mul, add);  mul = add = None
"""  # noqa: E501
ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
CALLS = ("aten::addmm", ATTENTION, "aten::addmm", "graph_0_cpp_fused_gelu_0")
PLACES = ("(8): <listcomp>", "(9): forward", "(10): forward", "(16): forward")
LINES = [f"/home/me/model.py{place}" for place in PLACES]
MODEL = "torch_compile_debug/run_2026_11_29-pid_7/torchinductor/model__0_forward_1.0"


def write_trace(folder: Path, calls: tuple[str, ...] = CALLS, pid: int = 7) -> Path:
    """A trace of two calls of compiled code."""
    events = []
    for start in (0, 1000):
        region = ("user_annotation", "## Call CompiledFxGraph None ##", start, 900)
        ops = [("cpu_op", name, start + 100 + 100 * at, 50) for at, name in enumerate(calls)]
        events += [
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "args": {}}
            for cat, name, ts, dur in (region, *ops)
        ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def write_graph(folder: Path, graph: str = GRAPH) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inductor_provenance_tracking_node_mappings.json").write_text(json.dumps(NODES))
    (folder / "fx_graph_transformed.py").write_text(graph)


def list_lines(run: Run) -> list[str | None]:
    kernels = run.events.filter(pl.col("kind") == "kernel", pl.col("t").is_not_null()).sort("t")
    return kernels["line"].cast(pl.String).to_list() if "line" in kernels.columns else []


@pytest.mark.parametrize("place", [MODEL, "."])
def test_calls_of_a_region_have_the_lines_of_its_graph(place: str, tmp_path: Path) -> None:
    """Views do not count: three nodes of the attention are of the line before it."""
    path = write_trace(tmp_path)
    write_graph(tmp_path / place)
    (run,) = load(path, cache=False)
    assert list_lines(run) == LINES * 2
    assert run.log.notices[-1].id == "compiled_origins" and run.log.notices[-1].count == 8


def test_other_calls_leave_lines_to_the_names_of_kernels(tmp_path: Path) -> None:
    path = write_trace(tmp_path, CALLS[1:])
    write_graph(tmp_path / MODEL)
    (run,) = load(path, cache=False)
    assert list_lines(run) == [None, None, LINES[3]] * 2


def test_kernel_that_a_graph_without_nodes_also_has_is_left_open(tmp_path: Path) -> None:
    """Inductor writes no nodes of a backward pass, whose kernels are numbered from zero again."""
    path = write_trace(tmp_path, CALLS[1:])
    write_graph(tmp_path / MODEL)
    backward = (tmp_path / MODEL).with_name("model__0_backward_3.1")
    backward.mkdir()
    (backward / "output_code.py").write_text("cpp_fused_gelu_0(buf0)")
    (run,) = load(path, cache=False)
    assert not any(list_lines(run))


def test_graphs_of_another_process_or_that_differ_say_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path, pid=8)
    write_graph(tmp_path / MODEL)
    assert not any(list_lines(load(path, cache=False)[0]))
    path = write_trace(tmp_path)
    write_graph((tmp_path / MODEL).with_name("model__0_forward_2.1"), GRAPH.replace(":16 in", ":61 in"))
    lines = list_lines(load(path, cache=False)[0])
    assert not any(lines)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"cppCodeToPost": {"a:1": 3, "b": []}}'])
def test_damaged_files_of_the_compiler_are_passed_over(damage: str, tmp_path: Path) -> None:
    path = write_trace(tmp_path)
    write_graph(tmp_path)
    (tmp_path / "inductor_provenance_tracking_node_mappings.json").write_text(damage)
    assert not any(list_lines(load(path, cache=False)[0]))
