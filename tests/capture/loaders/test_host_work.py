"""What stands for kernels in a trace without a device, against the same files read in plain Python."""

from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.capture.loaders._host_spans import read_spans, sum_self_times
from tests.conftest import document


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
