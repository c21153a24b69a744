"""The time of the kernels of a step, against a plain loop over the rows."""

from collections import defaultdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.importlog import Log
from capture.run import Run, build
from tracetui import cancel
from tracetui.analysis.compare.at_once import of_each
from tracetui.analysis.step_sums import kernel_sums
from tracetui.look import Look

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["prefill", "decode", None]),
        st.sampled_from([0, 1, 7, None]),
        st.sampled_from(["rank 0 / gpu0/7", "rank 3 / gpu0/7", "host"]),
        st.integers(1, 1 << 61),
    ),
    min_size=1,
    max_size=12,
)


def run_of(rows: list[tuple[str | None, int | None, str, int]]) -> Run:
    columns = ("phase", "step", "track", "dur")
    frame = pl.DataFrame([dict(zip(columns, row, strict=True)) for row in rows], infer_schema_length=None)
    frame = frame.with_columns(kind=pl.lit("kernel"), name=pl.lit("k"), lens=pl.lit("gpu"))
    return build("made", {}, frame, Log("made"))


@given(ROWS, st.sampled_from(["decode", None]), st.sampled_from([(0, 1), None]))
def test_the_slowest_rank_stands_for_a_step(
    rows: list[tuple[str | None, int | None, str, int]],
    phase: str | None,
    window: tuple[int, int] | None,
) -> None:
    run = run_of(rows)
    sums: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for its_phase, step, track, dur in rows:
        in_phase = phase is None or not run.has("phase") or its_phase == phase
        if step is not None and in_phase and (window is None or window[0] <= step <= window[1]):
            sums[step][track] += dur
    ranked = any(track.startswith("rank") for _, _, track, _ in rows)
    expected = {step: (max if ranked else sum)(of.values()) for step, of in sums.items()}
    if not all(value < 1 << 63 for value in expected.values()):
        return  # more than a number of 64 bits holds
    for _ in range(2):  # computed, then known
        found = kernel_sums(run, Look(phase=phase, window=window), "gpu")
        assert dict(found.iter_rows()) == expected


def test_runs_are_asked_in_order_and_stop_when_nobody_waits() -> None:
    runs = [run_of([("decode", 0, "host", n)]) for n in (1, 2, 3)]
    assert of_each(lambda run: int(run.events["dur"][0]), runs) == [1, 2, 3]
    token = cancel.Token()
    token.cancel()
    with cancel.working_for(token), pytest.raises(cancel.Cancelled):
        of_each(lambda run: kernel_sums(run, Look(), "gpu"), runs)
