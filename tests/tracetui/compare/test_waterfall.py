"""The waterfall adds up to the nanosecond, on every pair of runs of every seed and of the samples."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import polars as pl
import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES, document, shared
from tests.tracetui.runs import recording
from tracetui.analysis.frames import selection
from tracetui.compare.diff import CHANGE_PARTS, build_waterfall, compare_runs, split_change
from tracetui.look import Look

FOLDERS = ("chrome_trace", "latencyprism", "metallic", "nsys", "proton", "rocprof")
LARGEST = 1_000_000  # bytes of a sample: the larger ones add time and no kind of run


SEEDS = (
    "mlc/three_quants.md", "latencyprism/cross.md", "cs336/four_models.md",
    *(f"seed {number}" for number in range(5)),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
def test_on_every_pair_of_a_document(name: str) -> None:
    exact(list(combinations(load(document(name), cache=False), 2)))


@pytest.mark.slow
def test_on_the_fixtures() -> None:
    """Each run against the next, and the last against the first."""
    files = sorted(p for p in FIXTURES.rglob("*") if p.is_file() and p.suffix not in (".svg", ".md"))
    runs = [run for path in files for run in _runs(path)]
    exact([*pairwise(runs), (runs[-1], runs[0])])


@pytest.mark.corpus
@pytest.mark.parametrize("folder", FOLDERS)
def test_on_the_samples_of_a_format(folder: str) -> None:
    """Each run against the next, and the last against the first."""
    runs = [run for path in sorted(shared(f"samples/{folder}").rglob("*")) for run in _runs(path)]
    exact([*pairwise(runs), (runs[-1], runs[0])])


def _runs(path: Path) -> Iterator[Run]:
    if path.is_file() and path.stat().st_size <= LARGEST:
        try:
            yield from load(path, cache=False)
        except CaptureError:
            return


def exact(pairs: Sequence[tuple[Run, Run]]) -> None:
    """Bars, parts and rows all come to what the kernel rows of both runs differ by."""
    asked = 0
    for a, b in pairs:
        if not all(selection.list_lenses(run) for run in (a, b)):
            continue
        asked += 1
        found = compare_runs((a, b), Look())
        expected = _whole(b) - _whole(a)
        assert sum(int(found.rows[c].sum()) for c in CHANGE_PARTS) == expected
        assert int(found.rows["delta_ns"].sum()) == expected
        for by in ("op", "category"):
            assert int(build_waterfall(found.rows, by, found.gap_ns)["delta_ns"].sum()) == expected + (
                found.gap_ns or 0
            )
    assert asked or not any(selection.list_lenses(run) for pair in pairs for run in pair)


def _whole(run: Run) -> int:
    """All kernel time under the first stopwatch, added up by hand."""
    rows = run.events.filter((pl.col("kind") == "kernel") & pl.col("dur").is_not_null())
    lens = str(run.meta.get("lens") or selection.list_lenses(run)[0])
    chosen = lens if lens in selection.list_lenses(run) else selection.list_lenses(run)[0]
    pairs = zip(rows["lens"].cast(pl.String).to_list(), rows["dur"].to_list(), strict=True)
    return sum(dur for of, dur in pairs if of == chosen)


def test_time_of_no_call_counts_whole() -> None:
    """A summary's row of no instances that took 5.21 ms, beside the same kernel of a hundred calls."""
    called, not_called = (load(FIXTURES / "nsys" / name)[0] for name in ("kern_sum.csv", "no_instances.csv"))
    exact([(called, not_called), (not_called, called)])


def test_the_waterfall_is_exact() -> None:
    a, b = recording("a", noise=1, gap=50), recording("b", noise=2, gap=80, slow={"norm": 2})
    actual = compare_runs((a, b), Look())
    for by in ("op", "layer", "phase", "category"):
        bars = build_waterfall(actual.rows, by, actual.gap_ns)
        walls = [int(r.events.filter(pl.col("kind") == "step")["dur"].sum()) for r in (a, b)]
        assert bars["delta_ns"].sum() == walls[1] - walls[0]
    assert actual.gap_ns == 48 * 30


def test_time_without_calls_is_split_once() -> None:
    """As a printed summary has it: on both sides, on either, and beside calls."""
    rows = pl.DataFrame(
        [(0, 0, 50, 70), (0, 3, 0, 9), (2, 0, 10, 0), (2, 3, 10, 30)],
        schema=["count_a", "count_b", "total_a_ns", "total_b_ns"],
        orient="row",
    )
    split = split_change(rows)
    assert split.select(CHANGE_PARTS).rows() == [(0, 0, 20, 0), (0, 0, 9, 0), (0, 0, 0, -10), (5, 15, 0, 0)]
    assert split["delta_ns"].to_list() == [20, 9, -10, 20]
