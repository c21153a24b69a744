"""What other programs had of the processors while a step ran: by hand, and through a whole comparison."""

from typing import Any

import polars as pl
import pytest

from capture.import_log import Log
from capture.run import Run, build_run
from tests.tracetui.runs import made
from tracetui.compare.diff import compare_runs
from tracetui.compare.evidence import cpu_contention
from tracetui.compare.evidence.repeat_test import assume_floor
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.compare.words.decision import describe_decision
from tracetui.look import Look, Terms

SECOND = 10**9


def sampled(
    steps: list[tuple[float, float]], samples: list[tuple[float, float, float]], cores: int, **meta: Any
) -> Run:
    """Steps from and to so many seconds; samples of (second, own processors, all that were in use)."""
    rows: list[dict[str, Any]] = []
    for number, (begin, end) in enumerate(steps):
        at = {"step": number, "t": int(begin * SECOND), "dur": int((end - begin) * SECOND), "lens": "wall"}
        rows += [{"kind": kind, "name": kind, **at} for kind in ("step", "kernel")]
    for second, own, used in samples:
        at = {"kind": "counter", "t": int(second * SECOND)}
        rows.append({"name": "process_cpu_usage", "value": 100 * own, **at})
        rows.append({"name": "host_cpu_usage", "value": 100 * used / cores, "track": "host", **at})
        rows += [{"name": "core_usage", "value": 0.0, "track": f"core {n}", **at} for n in range(cores)]
    return build_run("r", meta, pl.DataFrame(rows, infer_schema_length=None), Log())


def others(run: Run) -> list[float]:
    load = cpu_contention.measure_other_load(run)
    assert load is not None
    return load["contended_cores"].to_list()


def test_a_step_has_the_mean_over_its_time() -> None:
    """Others had 0, 1 and 0.5 processors in the seconds that end at 1, 2 and 3; both threads want two."""
    samples = [(1.0, 2.0, 2.0), (2.0, 1.0, 2.0), (3.0, 1.5, 2.0)]
    steps = [(0.0, 1.0), (0.5, 1.5), (1.0, 3.0), (1.75, 2.25), (3.5, 4.0), (2.5, 4.5)]
    actual = others(sampled(steps, samples, 2, threads=2))
    assert actual == pytest.approx([0.0, 0.5, 0.75, 0.75, 0.0, 0.125])


def test_a_program_leaves_to_others_what_it_never_uses() -> None:
    """It used one of four at most, so three are free; others had 2, 3 and 3.5."""
    samples = [(1.0, 1.0, 3.0), (2.0, 1.02, 4.0), (3.0, 0.5, 4.0)]
    steps = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert others(sampled(steps, samples, 4)) == pytest.approx([0.0, 0.0, 0.5], abs=0.03)
    assert others(sampled(steps, samples, 4, threads=4)) == pytest.approx([2.0, 2.98, 3.5])


def test_cores_in_use_are_a_difference_where_nothing_else_used_them() -> None:
    """Its own second thread; where others have that core, it is no difference of the program."""
    steps = [(float(n), n + 1.0) for n in range(10)]
    one, two, waiting, beside = (
        sampled(steps, [(n + 1.0, own, used) for n in range(10)], 2, threads=1)
        for own, used in ((1.0, 1.0), (1.9, 1.9), (0.4, 0.4), (0.4, 2.0))
    )
    said = [[str(w) for w in compare_runs((one, run), Look()).works] for run in (two, waiting, beside, one)]
    assert said == [["cores used 1.0 and 1.9"], ["cores used 1.0 and 0.4"], [], []]
    many = [sampled(steps, [(n + 1.0, c, c) for n in range(10)], 16, threads=8) for c in (6.1, 6.7)]
    assert not compare_runs(many, Look()).works
    few = sampled(steps[:3], [(n + 1.0, 1.9, 1.9) for n in range(3)], 2, threads=1)
    assert cpu_contention.measure_used_cores(few) is None


def test_what_was_left_out_is_told_with_its_measure() -> None:
    """Of ten steps of b three were run beside others that had half, half and all of two processors."""
    had = [0.0] * 7 + [1.0, 1.0, 2.0]
    steps = [(float(n), n + 1.0) for n in range(10)]
    quiet = sampled(steps, [(n + 1.0, 2.0, 2.0) for n in range(10)], 2, threads=2)
    busy = sampled(steps, [(n + 1.0, 2.0 - o, 2.0) for n, o in enumerate(had)], 2, threads=2)
    numbers = pl.Series(range(10))
    assert cpu_contention.is_contended(busy, numbers).tolist() == [False] * 7 + [True] * 3
    assert cpu_contention.describe_excluded_steps(busy, numbers, "b") == (
        "3 of 10 steps of b excluded: other programs used 67% of the 2 cores"
    )
    assert cpu_contention.describe_excluded_steps(quiet, numbers, "a") == ""
    actual = compare_runs(Sides((quiet, busy), floor=NoiseFloor(0.01, source="said")), Look())
    assert "3 of 10 steps of b excluded" in actual.notes[0] and "of a excluded" not in actual.notes[0]


def test_a_step_that_others_slowed_does_not_decide() -> None:
    """Three of ten steps of b took thrice as long, and others had the processors in just these."""
    begin, steps = 0.0, []
    for number in range(10):
        steps.append((begin, begin + (3.0 if number >= 7 else 1.0)))
        begin = steps[-1][1]
    samples = [(end, 0.5 if end - start > 2 else 2.0, 2.0) for start, end in steps]
    b = sampled(steps, samples, 2, threads=2)
    a = sampled(
        [(float(n), n + 1.0) for n in range(10)], [(n + 1.0, 2.0, 2.0) for n in range(10)], 2, threads=2
    )
    rows = compare_runs(Sides((a, b), floor=NoiseFloor(0.001, source="said")), Look()).rows
    assert rows["verdict"].to_list() == ["same"] and rows["median_delta_ns"].to_list() == [0.0]


def test_a_repeat_is_contended_if_most_of_its_steps_were() -> None:
    steps = [(float(n), n + 1.0) for n in range(20)]
    for count in (6, 14):
        own = [2.0 - (n < count) for n in range(20)]
        run = sampled(steps, [(n + 1.0, cores, 2.0) for n, cores in enumerate(own)], 2, threads=2)
        assert cpu_contention.is_mostly_contended(run) is (count == 14)


def test_what_nobody_sampled_is_not_known() -> None:
    assert cpu_contention.measure_other_load(sampled([(0.0, 1.0)], [], 2)) is None


def test_runs_beside_other_programs_state_the_floor_that_judges_them() -> None:
    """2√2 standard deviations of 0.7: exp(1.98) = 7.2; a step of 1 s in a takes 2 s in b."""
    quiet, busy = (
        sampled(
            [(size * n, size * (n + 1.0)) for n in range(10)],
            [(n + 1.0, own, 2.0) for n in range(20)],
            2,
            threads=2,
        )
        for size, own in ((1.0, 2.0), (2.0, 1.0))
    )
    for floor in (NoiseFloor(), NoiseFloor(0.01, source="said")):
        lines = describe_decision(compare_runs(Sides((quiet, busy), floor=floor), Look()), Terms())
        assert "a factor of 7.2 (floor 70%); this is +100.0%" in lines[-1]


def test_operators_on_a_cpu_of_unknown_load_have_a_larger_floor() -> None:
    """With counters of the machine, on a GPU, or where the user says it, the floor is as it was."""
    counted = sampled([(0.0, 1.0)], [(1.0, 1.0, 1.0)], 2)
    on_host, on_gpu = (
        made([{"kind": "kernel", "name": "mm", "dur": 1, "lens": lens}]) for lens in ("host", "gpu")
    )
    assert assume_floor(Sides((on_gpu, counted))) == NoiseFloor()
    assert assume_floor(Sides((on_gpu, on_host))) == NoiseFloor(0.7)
    said = NoiseFloor(0.02, source="said")
    assert assume_floor(Sides((on_host, on_host), floor=said)) is said
