"""The questions of a training run, from files whose answers are worked out on paper."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.import_log import Log
from capture.load_runs import load
from capture.native.assembler import Assembler
from capture.run import Run
from tests.capture.loaders import _nsys_file as nsys
from tests.capture.loaders._nsys_file import call, kernel, range_
from tests.capture.loaders.test_cs336 import printed
from tests.conftest import document
from tests.tracetui.runs import decode, made
from tracetui.analysis.training import PARTS, compute_training_table
from tracetui.look import Look
from tracetui.report_formats import FORMATS, format_report
from tracetui.views import ask, find_missing_needs, load_view

TRAIN = load_view("training")

# name, op, category, layer, path, ns, flops
FORWARD = [
    ("q_proj", "attn.q", "matmul", 0, "forward / layers.0 / attn", 300, 600),
    ("scores", "attn.core", "matmul", 0, "forward / layers.0 / attn", 100, 200),
    ("softmax_exp", "attn.core", "softmax", 0, "forward / layers.0 / attn", 150, 50),
    ("mix", "attn.core", "matmul", 0, "forward / layers.0 / attn", 100, 200),
    ("output_proj", "attn.out", "matmul", 0, "forward / layers.0 / attn", 150, 400),
    ("swiglu", "mlp.act", "elementwise", 0, "forward / layers.0 / ffn", 200, 10),
]
BACKWARD = [
    ("loss", "loss", "other", None, "backward", 60, 5),
    ("lm_head", "lm_head", "matmul", None, "backward / lm_head", 200, 900),
    ("q_proj", "attn.q", "matmul", 0, "backward / layers.0 / attn", 1200, 1200),
    ("softmax_exp", "attn.core", "softmax", 0, "backward / layers.0 / attn", 500, 100),
    ("token_embeddings", "embed", "copy", None, "backward / token_embeddings", 20, 0),
    ("grad_accum", "grad_accum", "elementwise", None, "backward", 15, None),
    ("unattributed", "unattributed", "other", None, "backward", 5, None),
]
OPTIMIZER = [("adamw", "optimizer", "elementwise", 0, "optimizer / layers.0 / attn", 300, 30)]
PEAKS = {"forward": 700, "backward": 900, "optimizer": 500}
WALLS = {"forward": 1000, "backward": 2200, "optimizer": 300}


def training_run(
    *, steps: int = 2, stray: int = 0, without: str = "", more: tuple[dict[str, Any], ...] = ()
) -> Run:
    """So many whole steps of 3,600 ns, and strays of which the backward pass was not watched."""
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + stray + 1):
        at = step * 3600
        rows.append({"kind": "step", "name": "train", "t": at, "dur": 3600, "step": step, "tokens": 8})
        parts = {"forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER}
        for phase, kernels in parts.items():
            facts = {"step": step, "phase": phase, "lens": "wall"}
            rows.append({"kind": "span", "name": phase, "t": at, "dur": WALLS[phase], **facts})
            held = {"kind": "memory", "t": at, "phase": phase, "step": step}
            rows.append({**held, "name": f"peak allocated, {phase}", "bytes": PEAKS[phase] + (step == 2)})
            if phase == without or (phase == "backward" and step > steps):
                continue
            for name, op, category, layer, path, dur, flops in kernels:
                own = {"name": name, "op": op, "category": category, "layer": layer, "path": path}
                rows.append({"kind": "kernel", "t": at, "dur": dur, "flops": flops, **own, **facts})
    unprofiled = {"forward": 800, "backward": 2000, "optimizer": 200}
    return made([*rows, *more], model="tiny", unprofiled_ns=unprofiled)


def native_file(folder: Path, steps: int = 2) -> Path:
    """The same as lines that any program could have written."""
    run, path = training_run(steps=steps), folder / "prof.jsonl"
    lines = [{"kind": "run", "schema": 1, "name": "tiny", "meta": dict(run.meta)}, *run.events.to_dicts()]
    told = ({k: v for k, v in line.items() if v is not None} for line in lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in told))
    return path


def answers(run: Run, look: Look | None = None) -> dict[tuple[str, str | None, str | None], dict[str, Any]]:
    rows, _ = compute_training_table(run, look or Look())
    return {(r["part"], r["phase"], r["name"]): r for r in rows.to_dicts()}


def test_the_answers_of_a_native_file(tmp_path: Path) -> None:
    for run in (training_run(), load(native_file(tmp_path), cache=False)[0]):
        actual = answers(run)
        wall = actual["time", "forward", "wall"]
        assert (wall["count"], wall["total_ns"], wall["mean_ns"]) == (2, 2000, 1000)
        assert wall["share"] == pytest.approx(1000 / 3600)
        assert actual["time", "forward", "kernels"]["mean_ns"] == 1000
        assert actual["time", "backward", "kernels"]["share"] == pytest.approx(2000 / 2200)
        assert actual["time", "step", "wall"]["mean_ns"] == 3600
        assert actual["time", "forward", "without the profiler"]["time_ratio"] == pytest.approx(0.8)
        assert actual["time", "step", "without the profiler"]["time_ratio"] == pytest.approx(3000 / 3600)
        top = [r for key, r in actual.items() if key[:2] == ("top", "backward")]
        assert [(r["name"], r["count"], r["total_ns"]) for r in top] == [
            ("q_proj", 2, 2400), ("softmax_exp", 2, 1000), ("lm_head", 2, 400), ("loss", 2, 120),
            ("token_embeddings", 2, 40),
        ]  # fmt: skip
        assert top[0]["share"] == pytest.approx(0.6)


def test_products_and_all_else() -> None:
    actual = answers(training_run())
    assert actual["others", "forward", "all but matmul"]["share"] == pytest.approx(0.35)
    assert actual["others", "forward", "elementwise"]["share"] == pytest.approx(0.20)
    assert actual["others", "forward", "softmax"]["share"] == pytest.approx(0.15)
    assert actual["others", "optimizer", "all but matmul"]["share"] == 1
    assert actual["matmul", "forward", "matmul"]["share"] == pytest.approx(0.65)
    assert actual["matmul", "step", "matmul"]["share"] == pytest.approx((650 + 1400) / 3300)
    assert actual["matmul", "step", "other"]["share"] == pytest.approx((350 + 600 + 300) / 3300)


def test_softmax_against_products_in_time_and_in_flops() -> None:
    actual = answers(training_run())
    assert (actual["attention", "forward", "softmax"]["total_ns"],) == (300,)
    assert actual["attention", "forward", "matmul"]["total_ns"] == 2 * (100 + 100 + 150)
    assert actual["attention", "forward", "matmul"]["flops"] == 2 * (200 + 200 + 400)
    both = actual["attention", "forward", "softmax / matmul"]
    assert both["time_ratio"] == pytest.approx(150 / 350) and both["flop_ratio"] == pytest.approx(50 / 800)
    assert both["text"] is None


def test_whose_work_the_backward_pass_is() -> None:
    actual = answers(training_run())
    shares = {key[2]: r["share"] for key, r in actual.items() if key[0] == "owners"}
    assert shares == pytest.approx(
        {"modules": 0.95, "loss": 0.03, "embed": 0.01, "grad_accum": 0.0075, "unattributed": 0.0025}
    )


def test_the_largest_that_each_phase_took() -> None:
    run = training_run(steps=3)
    actual = answers(made(run.events.to_dicts(), bytes_needed=1000, bytes_of_states=400))
    sizes = {key[1:]: row["bytes"] for key, row in actual.items() if key[0] == "memory"}
    assert sizes == {
        ("forward", "peak allocated"): 701,
        ("backward", "peak allocated"): 901,
        ("optimizer", "peak allocated"): 501,
        ("step", "weights, gradients, moments"): 400,
        ("step", "foreseen at its fullest"): 1000,
    }
    first = answers(run, Look(window=(1, 1)))
    assert first["memory", "backward", "peak allocated"]["bytes"] == 900


def test_only_steps_that_were_watched_as_a_whole_count() -> None:
    rows, notes = compute_training_table(training_run(stray=3), Look())
    assert rows.equals(compute_training_table(training_run(), Look())[0])
    assert notes == ["totals are of 2 steps"]
    assert compute_training_table(training_run(), Look(window=(1, 1)))[1] == ["totals are of 1 step"]


def test_steps_that_were_folded_answer_the_same(tmp_path: Path) -> None:
    assembler = Assembler(Log("tiny", "native"), "tiny", recent_events=300)
    for number, line in enumerate(native_file(tmp_path, 400).read_bytes().splitlines()):
        assembler.feed([(number, line)])
        if number % 500 == 0:
            assembler.build_snapshots(is_final=False)
    (folded,) = assembler.build_runs()
    assert folded.events.height < 3000 and folded.meta["folded"]["steps"] > 1
    rows, notes = compute_training_table(folded, Look())
    assert notes == ["totals are of 400 steps"]
    assert rows.equals(compute_training_table(training_run(steps=400), Look())[0])


def test_what_was_not_watched_is_said_by_name() -> None:
    actual = answers(training_run(without="backward"))
    assert actual["matmul", "forward", "matmul"]["share"] == pytest.approx(0.65)
    assert actual["matmul", "step", None]["text"] == "this source does not report the kernels of backward"
    assert actual["owners", "backward", None]["text"] == "this source does not report the kernels of backward"


def test_fused_attention_is_not_taken_apart() -> None:
    rows = training_run().events.filter(pl.col("op").cast(str).ne_missing("attn.core")).to_dicts()
    fused = {
        "kind": "kernel", "name": "attention", "op": "attn.core", "category": "attention", "dur": 250,
        "phase": "forward", "lens": "wall", "step": 1, "layer": 0,
    }  # fmt: skip
    rows, notes = compute_training_table(made([*rows, fused]), Look())
    output = rows.filter(part="attention")["text"].item()
    assert output == "this source does not report attention's softmax separately"
    assert "fused attention contains products, but is not counted as matmul" in notes


GEMM, REDUCE, EACH, FILL = 1, 2, 3, 4
NAMES = [
    (0, "cudaLaunchKernel_v7000"),
    (GEMM, "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(Params)"),
    (REDUCE, "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MaxOps>>(T3)"),
    (EACH, "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl>(int, T3)"),
    (FILL, "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"),
]
SCOPES = [
    ("train_step", 0, 9000), ("forward_pass", 100, 3100), ("attn_scores", 200, 300), ("softmax", 400, 600),
    ("final_matmul", 700, 800), ("output_proj", 900, 1000), ("ffn", 1100, 1200), ("backward", 3200, 7200),
    ("optimizer", 7300, 8300),
]  # fmt: skip
MAIN, AUTOGRAD = 10, 77
LAUNCHES = [  # thread, moment, kernel, ns
    (MAIN, 250, GEMM, 100), (MAIN, 450, REDUCE, 60), (MAIN, 500, EACH, 90), (MAIN, 750, GEMM, 100),
    (MAIN, 950, GEMM, 200), (MAIN, 1150, GEMM, 450), (MAIN, 3300, FILL, 20), (AUTOGRAD, 4000, GEMM, 700),
    (AUTOGRAD, 5000, EACH, 280), (MAIN, 7400, EACH, 500),
]  # fmt: skip


def nsys_file(folder: Path) -> Path:
    """Two training steps; the backward pass is launched from autograd's own thread, as torch does it."""
    ranges, calls, kernels = [], [], []
    for step in range(2):
        at = 9_000 * step
        ranges += [range_(at + a, at + b, name, process=10, thread=MAIN) for name, a, b in SCOPES]
        for i, (thread, moment, name, took) in enumerate(LAUNCHES):
            id = 100 * step + i
            calls.append(call(at + moment, id, process=10, thread=thread))
            kernels.append(kernel(at + moment + 20, at + moment + 20 + took, id, process=10, name=name))
    tables = {"StringIds": NAMES, nsys.KERNEL: kernels, nsys.RUNTIME: calls, nsys.NVTX: ranges}
    return nsys.write(folder / "train.sqlite", tables)


def test_the_same_answers_from_an_nsys_export(tmp_path: Path) -> None:
    (run,) = load(nsys_file(tmp_path), cache=False)
    actual = answers(run)
    walls = {p: actual["time", p, "wall"]["mean_ns"] for p in ("forward", "backward", "optimizer", "step")}
    assert walls == {"forward": 3000, "backward": 4000, "optimizer": 1000, "step": 9000}
    assert actual["time", "forward", "kernels"]["mean_ns"] == 1000
    assert "does not report" in actual["time", "forward", "without the profiler"]["text"]
    gemm = actual["top", "backward", NAMES[GEMM][1]]
    assert (gemm["count"], gemm["total_ns"], gemm["category"]) == (2, 1400, "matmul")
    assert gemm["share"] == pytest.approx(0.7), "the fill is not all that the backward pass shows"
    assert actual["others", "forward", "all but matmul"]["share"] == pytest.approx(0.15)
    assert actual["matmul", "forward", "matmul"]["share"] == pytest.approx(0.85)
    assert actual["matmul", "step", "matmul"]["share"] == pytest.approx((850 + 700) / 2500)
    assert actual["attention", "forward", "softmax"]["total_ns"] == 2 * (60 + 90)
    both = actual["attention", "forward", "softmax / matmul"]
    assert both["time_ratio"] == pytest.approx(150 / 400) and both["flop_ratio"] is None
    assert both["text"] == "this source does not report flops, nor the shape of the model"
    assert actual["owners", "backward", "unattributed"]["share"] == 1
    assert "softmax / matmul: this source does not report flops" in format_report(
        TRAIN, [run], Look(), "table"
    )
    notes = ask(TRAIN, [run], Look()).notes
    assert "totals are of 2 steps" in notes and any("another thread" in n or "NVTX" in n for n in notes)


REPORTS = pytest.mark.parametrize("report_name", ["cs336/four_models.md", "seed 4"])


def reported(name: str) -> tuple[Path, dict[str, Run]]:
    return document(name), {run.name: run for run in load(document(name), cache=False)}


@REPORTS
def test_a_report_tells_the_forward_pass_as_it_prints_it(report_name: str) -> None:
    path, runs = reported(report_name)
    for name, *figures in printed(path, "### Forward Pass Timings"):
        wall, apart, ratio = map(float, figures[:3])
        actual = answers(runs[name])
        assert actual["time", "forward", "wall"]["mean_ns"] == round(wall * 1e6)
        assert actual["time", "forward", "without the profiler"]["mean_ns"] == round(apart * 1e6)
        assert actual["time", "forward", "without the profiler"]["time_ratio"] == pytest.approx(
            ratio, abs=6e-3
        )
        assert ("time", "forward", "kernels") not in actual, "the report lists the longest only"


@REPORTS
def test_a_report_tells_the_shares_that_it_prints(report_name: str) -> None:
    path, runs = reported(report_name)
    for name, *figures in printed(path, "### Matrix Multiplication vs"):
        actual = answers(runs[name])
        keys = [(phase, what) for what in ("matmul", "other") for phase in ("forward", "step")]
        shares = [100 * actual["matmul", phase, what]["share"] for phase, what in keys]
        assert shares == pytest.approx([float(x) for x in figures])
        assert all(actual["matmul", phase, what]["total_ns"] is None for phase, what in keys)
        assert actual["others", "forward", "all but matmul"]["share"] == pytest.approx(
            float(figures[2]) / 100
        )


@REPORTS
def test_a_report_tells_softmax_against_products_as_it_prints_them(report_name: str) -> None:
    """The ratio of FLOPs is the one of the report's own formula."""
    path, runs = reported(report_name)
    for name, *figures in printed(path, "### Softmax vs"):
        both = answers(runs[name])["attention", "forward", "softmax / matmul"]
        assert 100 * both["time_ratio"] == pytest.approx(float(figures[2]), abs=0.06)
        heads, width, context = (runs[name].meta[k] for k in ("heads", "d_model", "context"))
        assert 1 / both["flop_ratio"] == pytest.approx(4 * width / heads + 2 * width**2 / (heads * context))


def test_kernels_without_phases_answer_what_they_can() -> None:
    rows = [{"kind": "kernel", "dur": dur, "lens": "gpu", **actual} for dur, actual in (
        (600, {"name": "gemm", "category": "matmul"}), (300, {"name": "gemm", "category": "matmul"}),
        (100, {"name": "add", "category": "elementwise"}),
    )]  # fmt: skip
    run = made(rows)
    actual = answers(run)
    assert (actual["top", "run", "gemm"]["count"], actual["top", "run", "gemm"]["share"]) == (2, 0.9)
    assert actual["matmul", "run", "matmul"]["share"] == 0.9
    assert actual["others", "run", "elementwise"]["share"] == 0.1
    assert actual["time", "run", "kernels"]["total_ns"] == 1000
    assert ("time", "step", "kernels") not in actual
    output = {part: row["text"] for (part, _, name), row in actual.items() if name is None}
    assert output == {
        "time": "this source does not report how long the forward pass took as a whole",
        "attention": "this source does not report attention's softmax and matmul separately",
        "owners": "this source does not report the kernels of backward",
        "memory": "this source does not report how much memory a phase takes",
    }
    answer = ask(TRAIN, [run], Look())
    assert answer.missing == () and answer.notes[0].endswith("the rest of the training view is complete")
    assert any(note.startswith("this source marks no phase") for note in answer.notes)
    assert find_missing_needs(TRAIN, [run]), "it is no tab of its own"


def test_a_backward_pass_alone_answers_what_it_can() -> None:
    rows = training_run().events.filter(pl.col("phase").cast(str) == "backward").to_dicts()
    actual = answers(made(rows))
    assert actual["top", "backward", "q_proj"]["total_ns"] == 2400
    assert actual["matmul", "forward", None]["text"] == "this source does not report the kernels of forward"
    assert ask(TRAIN, [made(rows)], Look()).missing == ()


def test_a_decode_run_has_no_training() -> None:
    answer = ask(TRAIN, [decode()], Look())
    assert answer.missing == ("a backward phase or the table of softmax", "a forward phase")
    assert answer.rows.is_empty()


def test_the_picture(golden: Callable[[str, str], None]) -> None:
    golden("training", format_report(TRAIN, [training_run()], Look(), "table", width=100))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_every_part(name: str) -> None:
    text = format_report(TRAIN, [training_run()], Look(), name)
    assert "softmax / matmul" in text and "modules" in text
    if name == "json":
        assert {row["part"] for row in json.loads(text)["rows"]} == set(PARTS)


def test_odd_looks_are_answered() -> None:
    run = training_run()
    for look in (
        Look(filter="no such name"), Look(phase="backward"), Look(window=(900, 901)), Look(lens="gpu"),
        Look(focus=(("layer", 0),)), Look(per="token", group="op"),
    ):  # fmt: skip
        assert format_report(TRAIN, [run], look, "table")
        assert set(ask(TRAIN, [run], look).rows["part"]) == set(PARTS)
