"""How fit captures are to be compared: what is partial, warm-up or lost, with the time it touches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec import structs

from capture.import_log import Notice
from capture.load_runs import load
from capture.native.schema import RECORDING_NAME
from capture.run import Run
from tests.conftest import shared
from tests.tracetui.runs import MS, decode, made
from tracetui import cli
from tracetui.analysis.key_facts import find_key_facts, suggest_views
from tracetui.analysis.time.fitness import describe_fitness, judge_fitness


def steps(*durations_ms: int, before_ms: int = 0) -> Run:
    """A step of a kernel and a head for each duration, and a kernel of no step before them."""
    rows: list[dict[str, Any]] = []
    clock = before_ms * MS
    if before_ms:
        rows.append({"kind": "kernel", "name": "k", "lens": "gpu", "track": "gpu0", "t": 0, "dur": clock})
    for step, dur in enumerate(durations_ms, 1):
        row = {"t": clock, "dur": dur * MS, "step": step}
        rows.append({"kind": "kernel", "name": "k", "lens": "gpu", "track": "gpu0", **row})
        if dur >= 5:  # a shorter one ends before its last kernel
            head = dur * MS // 5
            rows[-1]["dur"] -= head
            rows.append({**rows[-1], "name": "head", "t": clock + dur * MS - head, "dur": head})
        rows.append({"kind": "step", "name": "step", "lens": "wall", **row})
        clock += dur * MS
    return made(rows)


def described(run: Run) -> str:
    fitness = judge_fitness(run)
    assert fitness is not None
    return describe_fitness(fitness)


def test_whole_steps_are_fit() -> None:
    assert described(steps(*[10] * 6)) == "fit to compare: 6 whole steps"


def test_a_last_step_in_which_nothing_ran_is_named() -> None:
    """PyTorch's profiler writes one if the loop ends within a window of `schedule`."""
    run = steps(10, 10, 10)
    ran = run.events.filter((pl.col("kind") == "step") | (pl.col("step") < 3))
    text = described(Run(run.name, run.meta, ran, run.log, run.tables))
    assert text == "not fit to compare: nothing ran in the last step (10.00 ms)"


@pytest.mark.parametrize(
    ("run", "text", "touched_ms"),
    [
        (steps(10), "one step only", 0),
        (steps(40, 20, *[10] * 6), "2 slow first steps (60.00 ms)", 60),
        (steps(*[10] * 6, 4), "the last step is cut (4.000 ms)", 4),
        (steps(*[10] * 6, before_ms=3), "3.000 ms before the first step, of a step in part (1 kernel)", 3),
    ],
)
def test_flaws_are_named_with_the_time_they_touch(run: Run, text: str, touched_ms: int) -> None:
    fitness = judge_fitness(run)
    assert fitness is not None and fitness.touched_ns == touched_ms * MS
    assert described(run) == f"not fit to compare: {text}"


def test_a_first_step_with_more_operations_is_larger() -> None:
    """As the prompt among tokens: why it takes longer is in the file."""
    run = steps(40, *[10] * 6)
    flops = pl.when(pl.col("step") == pl.col("step").min()).then(40e6).otherwise(1e6)
    run = replace(run, events=run.events.with_columns(flops=pl.when(pl.col("kind") == "kernel").then(flops)))
    assert described(run) == "not fit to compare: 1 larger first step (40.00 ms)"


def test_lost_records_are_a_flaw_and_notices_are_none() -> None:
    run = steps(*[10] * 6)
    for severity, text in (("notice", "fit to compare: 6 whole steps"), ("error", "2 of 18 records lost")):
        log = structs.replace(run.log, dropped=2, notices=(Notice("x", severity, 2, "x"),))  # type: ignore[arg-type]
        assert text in described(replace(run, log=log))


def test_what_was_not_read_is_a_flaw() -> None:
    """As a second document in a file, whose events nobody has counted."""
    run = steps(*[10] * 6)
    notices = (Notice("x", "notice", 1, "a remark"), Notice("y", "data_loss", 1, "text after the list"))
    assert described(replace(run, log=structs.replace(run.log, notices=notices))) == (
        "not fit to compare: text after the list"
    )


def test_the_recorders_own_work_is_a_flaw_if_it_took_long() -> None:
    run = steps(*[10] * 6)
    own = {"kind": "span", "name": RECORDING_NAME, "lens": "wall", "t": 0, "dur": 2 * MS, "step": 3}
    assert described(made([*run.events.to_dicts(), own])) == (
        "not fit to compare: recording took 2.000 ms beside the steps"
    )


def test_of_the_capture_of_a_graph_nothing_else_is_said() -> None:
    path = shared("samples/serving/sglang_qwen3_8b_decode/capture_bs_32_rank0.json.gz")
    (run,) = load(path, cache=False)
    facts = {fact.name: fact.text for fact in find_key_facts(run)}
    assert facts.pop("fit") == "not fit to compare: the capture of a graph, not its execution"
    assert facts.keys() == {"subject"} and not suggest_views(run)


def test_the_tail_of_the_step_before_is_named_with_its_time() -> None:
    (run,) = load(shared("samples/carried_over/qwen_mi300.json.gz"), cache=False)
    (fit,) = (fact for fact in find_key_facts(run) if fact.name == "fit")
    assert fit.text.startswith("not fit to compare: one step only; 13.32 ms before the first step")


def test_nothing_is_said_of_runs_without_steps() -> None:
    assert judge_fitness(made([{"kind": "kernel", "name": "k", "dur": MS}])) is None
    assert judge_fitness(decode()) is not None


def test_a_window_that_saw_no_operation_is_not_fit() -> None:
    fitness = judge_fitness(made([{"kind": "mark", "name": "Record Window End"}]))
    assert fitness and describe_fitness(fitness) == "not fit to compare: no operation was recorded"


def test_window_without_work_says_how_long_it_was() -> None:
    """As torch 2.13 writes a window that no step activated, or in which memory was allocated."""
    window = {"kind": "mark", "name": "PyTorch Profiler (0)", "t": 0, "dur": 165_406, "lens": "host"}
    fitness = judge_fitness(made([window], producer="PyTorch profiler"))
    assert fitness and fitness.flaws[0].text.endswith("recorded in the 165.4 µs that the profiler was on")
    allocation = {"kind": "span", "name": "aten::empty", "t": 5, "dur": 100, "lens": "host"}
    fitness = judge_fitness(made([window, allocation], producer="PyTorch profiler", work="operators"))
    assert fitness and fitness.flaws[0].text.startswith("no operation that works was recorded in")


def test_a_window_that_saw_functions_of_python_alone_saw_no_operation() -> None:
    """Such as those of the profiler: a file that is saved after the next cycle of its schedule began."""
    run = made(
        [{"kind": "kernel", "name": "threading.py(629): wait", "lens": "host", "dur": MS}], work="spans"
    )
    assert judge_fitness(run) is None
    fitness = judge_fitness(replace(run, meta={**run.meta, "producer": "PyTorch profiler"}))
    assert fitness and describe_fitness(fitness) == "not fit to compare: no operation was recorded"


def test_doctor_fit_has_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("name,duration_us\nk,5\n")
    for file, code, text in (("sample:decode", 0, "fit to compare"), (str(table), 4, "unknown")):
        assert cli.main(["doctor", file, "--fit"]) == code
        assert text in capsys.readouterr().out


def test_doctor_fit_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--fit"]) == 2
    assert "--fit needs a file" in capsys.readouterr().err


def test_a_recording_without_steps_says_how_much_of_it_is_between_its_operations() -> None:
    """Two operations of 10 ms in 100: what the largest one takes is a share of 20 ms alone."""
    rows = [
        {"kind": "kernel", "name": "aten::mm", "lens": "host", "t": t * MS, "dur": 10 * MS} for t in (0, 90)
    ]
    facts = {fact.name: fact.text for fact in find_key_facts(made(rows))}
    assert facts["pace"] == "80.0% outside of operations"
    whole = [{**row, "t": number * 10 * MS} for number, row in enumerate(rows)]
    assert "pace" not in {fact.name for fact in find_key_facts(made(whole))}
