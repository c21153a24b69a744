"""One quantity has one value in all views of a file: each text is compared with the rows of other views."""

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from capture.run import Run
from tests.capture.test_fixtures import FILES
from tests.tracetui.runs import MS, made
from tests.tracetui.views.test_plausible_figures import CORPUS
from tracetui.analysis.ledger.step_ledger import compute_ledger
from tracetui.look import Look
from tracetui.samples import SAMPLES, find_sample
from tracetui.views import ask, load_view, load_views

UNITS_NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
ROUNDING = 2e-3  # of four printed digits
_NUMBER = r"([\d,]+(?:\.\d+)?)"
_TOKENS_PER_S = re.compile(rf"^{_NUMBER} tok/s")
_BOUND = re.compile(rf"([\d.]+)% of the bound \({_NUMBER} tok/s\)")
_OUTSIDE = re.compile(r"([\d.]+)% outside of")
_STEP = re.compile(rf"^a (?:(\w+) )?step (?:\(mean of [\d,]+\) )?takes {_NUMBER} (ns|µs|ms|s): ")
_SHARES = re.compile(rf"{_NUMBER} (ns|µs|ms|s) \(([\d.]+)%\)")


def parse_number(text: str) -> float:
    return float(text.replace(",", ""))


def list_texts(run: Run, name: str) -> list[str]:
    answer = ask(load_view(name), [run], Look())
    texts = [*answer.notes]
    for frame in (answer.rows, *answer.parts.values()):
        for column, kind in frame.schema.items():
            if kind == pl.String:
                texts += frame[column].drop_nulls().unique(maintain_order=True).to_list()
    return texts


def iter_differences(run: Run) -> Iterator[str]:
    """Yield each pair of figures that should be one: of speed, step, bound and idle share."""
    summary = [text for text in list_texts(run, "summary") if "tok/s" in text or "% outside of" in text]
    steps = ask(load_view("steps"), [run], Look()).rows
    fix = [match for text in list_texts(run, "fix") if (match := _STEP.match(text))]
    phase = fix[0][1] if fix else None
    has_times = {"wall_ns", "total_ns"} <= set(steps.columns)
    timed = steps.filter(pl.col("wall_ns").is_not_null()) if has_times else steps.clear()
    if phase is not None and "phase" in timed.columns:
        timed = timed.filter(pl.col("phase").cast(pl.String) == phase)
    working = timed.filter(pl.col("total_ns") > 0) if has_times else timed
    has_whole_steps = working.height and (working["total_ns"] <= working["wall_ns"]).all()
    for match in fix if has_whole_steps else []:
        step_ns = parse_number(match[2]) * UNITS_NS[match[3]]
        wall_ns = working["wall_ns"].mean()
        if abs(step_ns - wall_ns) > ROUNDING * wall_ns:
            yield f"{match[0]} and steps of {wall_ns}"
    for text in summary:
        speed, bound, outside = (p.search(text) for p in (_TOKENS_PER_S, _BOUND, _OUTSIDE))
        if speed and bound:
            rate = parse_number(speed[1]) / (float(bound[1]) / 100)
            if abs(rate - parse_number(bound[2])) > rate * (ROUNDING + 0.05 / float(bound[1])):
                yield text
        is_reported = "decode_tokens_per_s" in run.meta
        if speed and fix and not is_reported and timed.height and timed["tokens"].count():
            tokens = timed["tokens"].sum() / timed.height
            expected = tokens * 1e9 / timed["wall_ns"].mean()
            if abs(parse_number(speed[1]) - expected) > ROUNDING * expected:
                yield f"{text} and {expected} by steps"
        if outside and "gap_ns" in timed.columns and has_whole_steps:
            gap_ns, wall_ns = timed.drop_nulls("gap_ns").select(pl.col("gap_ns", "wall_ns").sum()).row(0)
            share = 100 * gap_ns / wall_ns
            if abs(float(outside[1]) - share) > 0.06:
                yield f"{text} and {share} by steps"


def iter_wrong_shares(run: Run) -> Iterator[str]:
    """Yield each `12.3 ms (45 %)` of a Fix whose share is not of the step of the same sentence."""
    for text in list_texts(run, "fix"):
        if match := _STEP.match(text):
            step_ns = parse_number(match[2]) * UNITS_NS[match[3]]
            for part, unit, share in _SHARES.findall(text):
                expected = 100 * parse_number(part) * UNITS_NS[unit] / step_ns
                if abs(float(share) - expected) > 0.05 + expected * ROUNDING + 100 / step_ns:
                    yield text


def iter_other_totals(run: Run) -> Iterator[str]:
    """Yield views whose rows are all the work, and add up to another total than `kernels`."""
    totals = {}
    for name, column in (("kernels", "total_ns"), ("shapes", "total_ns")):
        if name in {view.name for view in load_views()}:
            rows = ask(load_view(name), [run], Look()).rows
            if column in rows.columns and rows.height:
                totals[name] = rows[column].sum()
    if len(set(totals.values())) > 1 and totals["shapes"] > totals["kernels"]:
        yield f"totals {totals}"


def find_faults(run: Run) -> list[str]:
    return [*iter_differences(run), *iter_wrong_shares(run), *iter_other_totals(run)]


@pytest.mark.corpus
@pytest.mark.parametrize("path", [*FILES, *CORPUS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_quantity_has_one_value_in_all_views(path: Path) -> None:
    try:
        runs = load(path, cache=False)
    except CaptureError:
        pytest.skip("holds no profile")
    assert [fault for run in runs[:2] for fault in find_faults(run)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_a_quantity_of_a_sample_has_one_value_in_all_views(name: str) -> None:
    (run, *_) = load(find_sample(name))
    assert find_faults(run) == []
    changed = Look(what_if=(("attn.core", 0.9),))
    (predicted,) = ask(load_view("fix"), [run], changed).rows["step_ns"]
    ledger = compute_ledger(run, Look())
    assert ledger is not None and predicted == pytest.approx(ledger.step_ns / ledger.steps, rel=ROUNDING)


def test_share_of_wall_time_counts_parallel_threads_once() -> None:
    """As XLA's threads on a processor: the same figure as the gap of the step."""
    step = {"kind": "step", "name": "train", "step": 0, "t": 0, "dur": 100 * MS, "lens": "wall"}
    rows = [
        {
            "kind": "kernel",
            "name": "dot",
            "step": 0,
            "t": t * MS,
            "dur": 50 * MS,
            "lens": "host",
            "track": track,
        }
        for t, track in ((10, "thread 1"), (30, "thread 2"))
    ]
    answer = ask(load_view("steps"), [made([step, *rows], work="thunks")], Look())
    assert answer.rows["gap_ns"].to_list() == [30 * MS]
    assert answer.notes[0] == "1 step, 100.0 ms measured, 70.00 ms busy, 70.0% of 100.0 ms wall"
