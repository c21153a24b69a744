"""Work that the nodes of onnxruntime say, whatever they are called; and steps without kernels."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture.load_runs import load
from capture.run import Run
from tests.tracetui.runs import MS, made
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.equal_work import find_work_differences
from tracetui.compare.words.decision import describe_decision
from tracetui.look import Look, Terms

STYLES = ("/model/{}/{}", "node_{}_{}", "{}_{}", "StatefulPartitionedCall/net/{}/{}")  # of exporters


def profile(
    folder: Path, batch: int = 1, length: int = 24, style: str = STYLES[0], type: str = "float"
) -> Run:
    """Eight runs of a graph: tokens, a cache that grows by one in each, a product, a convolution."""
    events: list[dict[str, Any]] = [{"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 1}]
    for step in range(8):
        events.append({"cat": "Session", "name": "model_run", "ts": 1000 * step + 9, "dur": 900})
        nodes = (
            ("Gather", "int64", [batch, 1], [batch, 1, 64]),
            ("Concat", type, [batch, 4, length + step, 16], [batch, 4, length + step + 1, 16]),
            ("MatMul", type, [batch, 1, 64], [batch, 1, 256]),
            ("Conv", type, [batch, 3, 48, 48], [batch, 8, 48, 48]),
        )
        for at, (operator, of, sizes, result) in enumerate(nodes):
            args = {
                "op_name": operator,
                "input_type_shape": [{of: sizes}],
                "output_type_shape": [{of: result}],
            }
            name = style.format(f"layers.{at}", operator) if style[0] == "/" else style.format(operator, at)
            node = {"cat": "Node", "name": f"{name}_kernel_time", "args": args}
            events.append(node | {"ts": 1000 * step + 100 * at + 9, "dur": 90})
    path = folder / f"{batch}-{length}-{type}.json"
    path.write_text(json.dumps([{"ph": "X", "pid": 1, "tid": 1} | event for event in events]))
    return load(path, cache=False)[0]


def differences(a: Run, b: Run) -> list[str]:
    return list(map(str, find_work_differences(a, b, "context")))


@pytest.mark.parametrize("style", STYLES)
def test_batch_is_read_from_what_all_nodes_get(style: str, tmp_path: Path) -> None:
    """Nodes without a slash had no sizes, nor had convolutions: three times the batch was the same work."""
    a, b = (profile(tmp_path, batch, style=style) for batch in (1, 3))
    assert differences(a, b) == ["batch 1 and 3"] and differences(a, a) == []
    (work,) = find_work_differences(a, b, "context")
    assert work.is_work


def test_a_longer_cache_is_other_work_one_step_more_is_not(tmp_path: Path) -> None:
    a, b = (profile(tmp_path, length=length) for length in (24, 100))
    (difference,) = differences(a, b)
    assert difference == "operands of /model/layers.1/Concat 1×4×28×16 and 1×4×104×16"
    assert differences(a, profile(tmp_path, length=25)) == []


def test_fp16_is_named_also_where_a_processor_computes_in_fp32(tmp_path: Path) -> None:
    a, b = (profile(tmp_path, type=kind) for kind in ("float", "float16"))
    assert differences(a, b) == ["dtype fp32 and fp16"]
    cast = made(
        [{"kind": "kernel", "name": n, "lens": "host", "dur": MS, "t": at * MS, "dtype": d}
         for at, (n, d) in enumerate((("InsertedPrecisionFreeCast_x", "fp16"), ("/MatMul", "fp32")))],
        producer="ONNX Runtime",
    )  # fmt: skip
    assert "dtype fp32 and fp16" in differences(a, cast)


@pytest.mark.parametrize(
    "name", ["x_QuantizeLinear", "/up/w_DequantizeLinear", "up (QGemm)", "MatMul_3_NBits"]
)
def test_nodes_around_integers_are_quantised_wherever_the_operator_stands(name: str) -> None:
    a, b = (
        made([{"kind": "kernel", "name": n, "lens": "host", "dur": MS, "t": 0}], producer="ONNX Runtime")
        for n in ("/up/MatMul", name)
    )
    assert differences(a, b) == ["quant none and int8"]


def decoded(observed: int, ms: int = 4, context: int = 64, steps: int = 24) -> Run:
    """Decode steps of llama.cpp, one of which is observed node by node and takes ten times as long."""
    rows, clock = list[dict[str, Any]](), 0
    for step in range(steps):
        took = (10 if step == observed else 1) * ms * MS + step % 3 * 1000
        times = {"t": clock, "dur": took, "step": step, "phase": "decode"}
        sizes = {"tokens": 1, "batch": 1, "context": context + step}
        clock += took
        rows.append({"kind": "step", "name": "decode"} | times | sizes)
        if step == observed:
            rows.append(
                {"kind": "kernel", "name": "kq mul_mat", "category": "attention", "lens": "wall"} | times
            )
    return made(rows)


def test_steps_are_judged_by_all_of_them_where_few_have_kernels() -> None:
    """The one observed step stood for all: its context was other work, its time that of a step."""
    a, b = decoded(2), decoded(5, ms=8)
    assert differences(a, b) == []
    compared = compare_runs((a, b), Look())
    first = describe_decision(compared, Terms())[0]
    assert first.startswith("SLOWER: decode step 4.001 ms → 8.001 ms per token") and compared.comparability.ok
    assert differences(a, decoded(2, context=400)) == ["context 76 and 412"]


def test_time_within_spans_is_no_time_between_kernels() -> None:
    """Of a function of 90 ms that calls another for 1 ms ten times: its self time ends before these do."""
    calls = [("len", at * 10 * MS, MS) for at in range(10)]
    rows = [
        {"kind": kind, "name": name, "t": t, "dur": took, "lens": "host", "path": "main"}
        for kind, spans in (
            ("span", [("checksum", 0, 100 * MS), *calls]),
            ("kernel", [("checksum", 0, 5 * MS), *calls]),
        )
        for name, t, took in spans
    ]
    quick = [row | {"t": row["t"] // 10, "dur": row["dur"] // 10} for row in rows]
    compared = compare_runs((made(quick, work="spans"), made(rows, work="spans")), Look())
    assert not compared.phases.filter(what="between kernels").height


def test_functions_of_no_phase_are_judged_with_those_whose_names_sound_like_one() -> None:
    """A slow function of a program was in no line: its phases were guessed from names, as of a codec's."""

    def program(slow: int) -> Run:
        functions = (("decode", 0, 2, "decode"), ("search", 2, 30, None), ("wait_for_disk", 32, slow, None))
        rows = [
            {"kind": "kernel", "name": name, "t": t * MS, "dur": ms * MS, "phase": phase, "lens": "host"}
            for name, t, ms, phase in functions
        ]
        return made(rows, work="spans")

    lines = describe_decision(compare_runs((program(3), program(90)), Look()), Terms())
    assert lines[0].startswith("undecided: kernels 35.00 ms → 122.0 ms in all")
    assert "wait_for_disk +87.00 ms" in lines[1]


def graph(*nodes: tuple[str, str]) -> Run:
    """Six runs of nodes that get these sizes."""
    rows = [
        {
            "kind": "kernel",
            "name": n,
            "lens": "host",
            "dur": MS,
            "step": step,
            "t": (9 * step + at) * MS,
            "shape": s,
        }
        for step in range(6)
        for at, (n, s) in enumerate(nodes)
    ]
    return made(rows, producer="ONNX Runtime")


def test_nodes_that_onnxruntime_inserts_have_other_numbers_in_equal_runs() -> None:
    """Two copies changed their numbers, which was other work: equal runs were refused."""
    a, b = (
        graph(
            ("x (Conv)", "2×3×40×40"),
            (f"ReorderOutput_token_{m}", "2×32×20×20"),
            (f"ReorderOutput_token_{n}", "2×16×40×40"),
        )
        for m, n in ((7, 8), (8, 7))
    )
    assert differences(a, b) == []
    a, b = (graph(("p", sizes[0]), ("q", sizes[1])) for sizes in (("2×8", "2×9"), ("2×9", "2×8")))
    assert differences(a, b) == []


def test_the_first_dimension_of_a_recurrent_node_is_no_batch() -> None:
    a, b = (graph((name, f"{steps}×2×96")) for name, steps in (("gru0 (GRU)", 40), ("gru0 (GRU)", 90)))
    assert differences(a, b) == ["operands of gru0 (GRU) 40×2×96 and 90×2×96"]


def test_prompts_that_are_read_in_other_parts_are_the_same_work() -> None:
    """As of llama.cpp with another n_batch: 200 tokens at once, or 64 and 64 and 64 and 8."""

    def prompted(*parts: int) -> Run:
        rows, clock, context = list[dict[str, Any]](), 0, 0
        for step, tokens in enumerate((*parts, *[1] * 12)):
            context += tokens
            phase = "decode" if tokens == 1 else "prefill"
            sizes = {"tokens": tokens, "batch": 1, "context": context}
            times = {"t": clock, "dur": tokens * MS, "step": step, "phase": phase}
            rows += [
                {"kind": "step", "name": phase} | times | sizes,
                {"kind": "kernel", "name": "mm", "lens": "wall"} | times,
            ]
            clock += tokens * MS
        return made(rows)

    works = find_work_differences(prompted(200), prompted(64, 64, 64, 8), "context")
    assert works and not any(work.is_work for work in works)
    assert any(work.is_work for work in find_work_differences(prompted(200), prompted(64, 64), "context"))
