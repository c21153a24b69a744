"""What stands for kernels in a trace without a device, against the same files read in plain Python."""

import json
import os
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.classify.short_names import shorten_name
from capture.load_runs import load, load_all
from capture.run import Run
from tests.capture.loaders._host_spans import read_events, read_spans, sum_self_times
from tests.conftest import document
from tracetui.look import Look
from tracetui.views import ask, load_view


def sum_work(run: Run) -> dict[str, int]:
    work = run.events.filter(pl.col("kind") == "kernel")
    return dict(work.group_by(pl.col("name").cast(pl.String)).agg(pl.col("dur").sum()).iter_rows())


def sum_spans(spans: list[tuple[Any, int, int, str]]) -> Counter[str]:
    threads = defaultdict(list)
    for thread, *span in spans:
        threads[thread].append(tuple(span))
    return sum((sum_self_times(of_thread) for of_thread in threads.values()), Counter[str]())


@pytest.mark.parametrize(
    "name",
    [
        "chrome/functions.json",
        "samples/host_only/pyspy_chrometrace.json",
        "samples/host_only/viztracer.json.gz",
    ],
)
def test_functions_count_with_what_they_take_themselves(name: str) -> None:
    path = document(name)
    (run,) = load(path, cache=False)
    expected = {n: total for n, total in sum_spans(read_spans(path)).items() if total}
    assert {n: total for n, total in sum_work(run).items() if total} == expected
    assert run.meta["work"] == "spans"


def test_each_call_is_one_row_of_work() -> None:
    (run,) = load(document("chrome/functions.json"), cache=False)
    calls = Counter(name for *_, name in read_spans(document("chrome/functions.json")))
    work = run.events.filter(pl.col("kind") == "kernel")["name"].cast(pl.String).value_counts()
    assert all(calls[name] == count for name, count in work.iter_rows())


@pytest.mark.parametrize("name", ["chrome/jax_processor.json", "samples/real_jax/decode.trace.json.gz"])
def test_operations_of_xla_are_the_work(name: str) -> None:
    """Loops contain other operations; the marks at their ends, and what the profiler does, are no work."""
    path = document(name)
    spans = read_spans(path, lambda event: "hlo_op" in event.get("args", {}))
    assert len(spans) > 100
    (run,) = load(path, cache=False)
    assert sum_work(run) == dict(sum_spans(spans))
    assert run.meta["work"] == "thunks"


def test_both_files_of_a_jax_run_hold_the_same_work() -> None:
    (trace,), (profile,) = (
        load(document(f"samples/real_jax/decode.{kind}"), cache=False)
        for kind in ("trace.json.gz", "xplane.pb")
    )
    by_trace, by_profile = sum_work(trace), sum_work(profile)
    assert by_trace.keys() == by_profile.keys()
    assert sum(by_trace.values()) == pytest.approx(252.12e6, rel=1e-4)  # of the statistics hlo_op
    assert all(abs(by_trace[name] - by_profile[name]) <= 12 for name in by_trace)  # 1 ns a launch


def test_inputs_of_the_program_of_a_jax_run_are_those_that_it_was_given() -> None:
    """As its record.py builds them: weights of four layers, embedding, caches of 8 × 512 tokens, 8 tokens."""
    (profile,) = load(document("samples/real_jax/decode.xplane.pb"), cache=False)
    layer = {"256x768": 1, "256x256": 1, "256x512": 2, "512x256": 1, "8x512x256": 2}
    assert profile.meta["program inputs"] == {k: 4 * n for k, n in layer.items()} | {"1000x256": 1, "8": 1}
    assert (profile.meta["dtype"], profile.meta["donated inputs"]) == ("float32", 0)


@pytest.mark.parametrize("compiled", [True, False])
def test_annotated_steps_of_jax_are_steps(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers stand in the arguments of events that are all named alike."""
    if not compiled:
        monkeypatch.setenv("TRACETUI_NO_COMPILED", "1")
    path = document("chrome/jax_processor.json")
    (run,) = load(path, cache=False)
    steps = run.events.filter(pl.col("kind") == "step").sort("step").select("step", "t", "dur").rows()
    spans = [
        (int(e["args"]["step_num"]), round(e["ts"] * 1000), round(e["dur"] * 1000))
        for e in read_events(path)
        if "step_num" in e.get("args", {})
    ]
    first = spans[0][1] - steps[0][1]
    assert len(steps) == 2 and steps == [(n, t - first, dur) for n, t, dur in spans]


def test_operations_of_xla_are_of_the_range_around_them_in_the_thread_of_python() -> None:
    """XLA runs them in threads of its own; the program waited for each call within its range."""
    path = document("chrome/jax_phases.json")
    events = read_events(path)
    ranges = [event for event in events if event.get("name") in ("prefill", "decode")]
    expected: Counter[str] = Counter()
    for event in (event for event in events if "hlo_op" in event.get("args", {})):
        (phase,) = (r["name"] for r in ranges if 0 <= event["ts"] - r["ts"] <= r["dur"])
        expected[phase] += round(event["dur"] * 1000)
    (run,) = load(path, cache=False)
    work = run.events.filter(pl.col("kind") == "kernel").group_by("phase").agg(pl.col("dur").sum())
    assert len(ranges) == 4 and dict(work.rows()) == expected


def test_operations_of_xla_are_not_of_the_dispatch_that_lasted_until_they_began() -> None:
    """All operations of `decode_step` began within its dispatch here; in equal runs none does."""
    path = document("chrome/jax_dispatch.json")
    events = read_events(path)
    dispatches = [event for event in events if event.get("name") == "PjitFunction(decode_step)"]
    starts = [event["ts"] for event in events if "hlo_op" in event.get("args", {})]
    assert len(starts) == 68 and all(any(0 < t - d["ts"] < d["dur"] for d in dispatches) for t in starts)
    (run,) = load(path, cache=False)
    assert not run.has("phase") and not run.has("path")


def test_both_files_of_a_jax_run_hold_the_same_steps() -> None:
    sums = []
    for kind in ("trace.json.gz", "xplane.pb"):
        (run,) = load(document(f"samples/real_jax/decode.{kind}"), cache=False)
        rows = run.events.filter(pl.col("step").is_not_null() & pl.col("kind").is_in(["step", "kernel"]))
        totals = rows.group_by("step", pl.col("kind").cast(pl.String)).agg(
            pl.col("dur").sum(), count=pl.len()
        )
        sums.append({(step, kind): (dur, count) for step, kind, dur, count in totals.iter_rows()})
    assert sums[0].keys() == sums[1].keys() and len(sums[0]) == 24
    for key, (dur, count) in sums[0].items():
        other_dur, other_count = sums[1][key]
        assert count == other_count and abs(dur - other_dur) <= count  # 1 ns a launch


@pytest.mark.parametrize(
    "name", ["chrome/torch_compiled.json", "samples/host_only/torch_compile_cpu.json.gz"]
)
def test_compiled_code_is_work_and_the_compilers_lookups_are_not(name: str) -> None:
    path = document(name)
    (run,) = load(path, cache=False)
    work, self_times = sum_work(run), sum_spans(read_spans(path))
    code = [n for n in self_times if n.startswith("## Call CompiledFxGraph")]
    assert len(code) == 1 and work[code[0]] == self_times[code[0]] > 0
    assert {n for n in work if not n.startswith("aten::")} == set(code)
    assert "TorchDynamo Cache Lookup" in self_times


@pytest.mark.parametrize(
    "name",
    [
        "chrome/functions.json",
        "chrome/onnxruntime.json",
        "samples/host_only/torch_stacks_modules.json.gz",
        "samples/host_only/torch_compile_cpu.json.gz",
        "samples/real_jax/decode.trace.json.gz",
        "samples/real_jax/decode.xplane.pb",
    ],
)
def test_sentences_about_a_host_name_no_kernels_and_no_launches(name: str) -> None:
    (run,) = load(document(name), cache=False)
    fix = ask(load_view("fix"), [run], Look())
    sentences = [*fix.notes, *fix.rows["advice"], *fix.rows["evidence"]]
    for view in ("tree", "steps", "kernels", "summary"):
        sentences += ask(load_view(view), [run], Look()).notes
    assert len(sentences) > 4
    assert not [s for s in sentences if "kernel" in s or re.search(r"\d launches", s)]


def write_spans(path: Path, *spans: tuple[str, str, int, int]) -> Path:
    """Write a trace of spans of one thread: category, name, begin and end in µs."""
    events = [{"ph": "X", "cat": cat, "name": name, "ts": t, "dur": end - t, "pid": 1, "tid": 1}
              for cat, name, t, end in spans]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_files_that_jax_writes_of_one_run_are_one_run(tmp_path: Path) -> None:
    for name in ("vm.xplane.pb", "vm.trace.json.gz", "perfetto_trace.json.gz"):
        kind = "xplane.pb" if name.endswith(".pb") else "trace.json.gz"
        shutil.copy(document(f"samples/real_jax/decode.{kind}"), tmp_path / name)
    shutil.copy(document("samples/real_jax/decode.trace.json.gz"), tmp_path / "other.trace.json.gz")
    assert [run.name for run in load_all([tmp_path], cache=False)] == ["other.trace.json.gz", "vm.xplane.pb"]


def test_a_trace_of_jax_has_the_inputs_that_the_profile_next_to_it_states(tmp_path: Path) -> None:
    for kind in ("trace.json.gz", "xplane.pb"):
        shutil.copy(document(f"samples/real_jax/decode.{kind}"), tmp_path / f"vm.{kind}")
    trace, profile = tmp_path / "vm.trace.json.gz", tmp_path / "vm.xplane.pb"
    (run,), (other,) = load(trace, cache=False), load(profile, cache=False)
    assert run.meta["program inputs"] == other.meta["program inputs"]
    os.truncate(profile, 1 << 40)  # more than is read
    (run,) = load(trace, cache=False)
    assert "program inputs" not in run.meta and run.events.height
    assert [n.id for n in run.log.notices if n.id == "unread_report"]


def test_a_pass_of_fsdp2_is_forward_from_its_first_mark_to_its_last(tmp_path: Path) -> None:
    """The modules inside mark themselves; a pass that is repeated within backward is a part of it."""
    note, op = "user_annotation", "cpu_op"
    path = write_spans(
        tmp_path / "sharded.json",
        (op, "aten::clone", 0, 5),
        (note, "FSDP::pre_forward", 10, 20), (op, "aten::embedding", 21, 24),
        (note, "FSDP::pre_forward (layers.0)", 25, 30), (op, "aten::mm", 31, 40),
        (note, "FSDP::post_forward (layers.0)", 41, 43), (op, "aten::addmm", 44, 50),
        (note, "FSDP::post_forward", 51, 53), (op, "aten::log", 54, 56),
        (note, "autograd::engine::evaluate_function: MmBackward0", 60, 99),
        (note, "FSDP::pre_forward (layers.0)", 61, 63), (op, "aten::bmm", 64, 66),
        (note, "FSDP::post_forward (layers.0)", 67, 69),
    )  # fmt: skip
    (run,) = load(path, cache=False)
    work = run.events.filter(pl.col("kind") == "kernel").select(pl.col("name", "phase").cast(pl.String))
    forward, backward = ("aten::embedding", "aten::mm", "aten::addmm"), ("aten::bmm",)
    expected = {**dict.fromkeys(forward, "forward"), **dict.fromkeys(backward, "backward")}
    assert dict(work.rows()) == {"aten::clone": None, "aten::log": None, **expected}


def test_functions_of_a_program_without_a_model_are_no_parts_of_one(tmp_path: Path) -> None:
    spans = [
        ("cc", "Activation", 0, 10),
        ("ui", "ImageDecoder::decode", 10, 20),
        ("ui", "EmbeddedWidget", 20, 30),
    ]
    (run,) = load(write_spans(tmp_path / "browser.json", *spans), cache=False)
    assert not [column for column in ("op", "phase", "layer") if run.has(column)]
    spans = [*spans, ("py", "attention (model.py:3)", 30, 40)]
    (run,) = load(write_spans(tmp_path / "model.json", *spans), cache=False)
    assert "attn.core" in run.events["op"].cast(pl.String)


def test_kernels_of_vllm_on_a_processor_are_the_work_not_the_python_around_them() -> None:
    path = document("samples/real_vllm/eager_prefill_mixed_decode.pt.trace.json.gz")
    (run,) = load(path, cache=False)
    expected = Counter[str]()
    for *_, start, end, name in read_spans(path):
        expected[name] += end - start
    work = sum_work(run)
    for name in ("_C::cpu_attention_with_kv_cache", "_C::cpu_attn_reshape_and_cache"):
        assert work[name] == expected[name] > 0
    assert not [name for name in work if name.startswith("vllm::unified_")]
    ops = dict(
        run.events.filter(pl.col("kind") == "kernel").select(pl.col("name", "op").cast(pl.String)).rows()
    )
    assert ops["_C::cpu_attention_with_kv_cache"] == "attn.core"
    assert ops["_C::cpu_attn_reshape_and_cache"] == "attn.kv"
    assert run.events["layer"].max() == 7


@pytest.mark.parametrize("ends_inside", [True, False])
def test_tasks_of_an_event_loop_count_once(ends_inside: bool, tmp_path: Path) -> None:
    """As viztracer --log_async writes two tasks: parts of the loop's thread, unless one outlasts its part."""
    calls = [
        ("Loop.run_forever", 1, 0, 100), ("_contextvars.Context.run", 1, 10, 30), ("work", 7, 11, 28),
        ("compute", 7, 12, 20), ("_contextvars.Context.run", 1, 50, 30),
        ("compute", 8, 51, 20 if ends_inside else 40),
    ]  # fmt: skip
    events = [
        {"ph": "X", "cat": "FEE", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
        for name, tid, ts, dur in calls
    ]
    path = tmp_path / "async.json"
    path.write_text(json.dumps({"traceEvents": events}))
    (run,) = load(path, cache=False)
    work = run.events.filter(pl.col("kind") == "kernel").group_by(pl.col("name").cast(pl.String))
    sums = {name: total // 1000 for name, total in work.agg(pl.col("dur").sum()).iter_rows()}
    assert sums == {
        "Loop.run_forever": 40, "_contextvars.Context.run": 12 if ends_inside else 32, "work": 8,
        "compute": 40 if ends_inside else 60,
    }  # fmt: skip


def test_compiled_code_of_a_processor_names_the_ops_that_it_was_fused_from(tmp_path: Path) -> None:
    """What torch 2.13 writes with TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1, for three layers of a model."""
    calls = [
        ("user_annotation", "## Call CompiledFxGraph f3dlzcvmj2rs ##", 0, 100),
        ("cpu_op", "aten::addmm", 5, 30),
        ("cpu_op", "graph_0_cpp_fused_gelu_0", 40, 12),
        ("cpu_op", "aten::addmm", 55, 30),
        ("cpu_op", "graph_0_cpp_fused_native_layer_norm_1", 90, 6),
    ]
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}}
        for cat, name, ts, dur in calls
    ]
    path = tmp_path / "compiled.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (run,) = load(path, cache=False)
    work = run.events.filter(pl.col("kind") == "kernel").select(pl.col("name", "op").cast(pl.String), "dur")
    ops = {name: op for name, op, _ in work.iter_rows()}
    assert ops["graph_0_cpp_fused_gelu_0"] == "mlp.act"
    assert ops["graph_0_cpp_fused_native_layer_norm_1"] == "norm"
    assert work["dur"].sum() == 100_000, "what is left is the region's own"
    assert shorten_name("graph_0_cpp_fused_native_layer_norm_1") == "cpp fused native_layer_norm"
