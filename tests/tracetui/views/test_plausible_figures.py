"""No view of any file prints a figure that cannot be, and what would be one is said."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from capture.run import Run
from tests.capture.test_fixtures import FILES
from tests.conftest import FIXTURES, SHARED
from tests.tracetui.runs import made
from tracetui.analysis.contradictions import clear_contradictions
from tracetui.look import Look
from tracetui.samples import SAMPLES, find_sample
from tracetui.views import Answer, ask, load_view, load_views

LARGEST = 4_000_000  # bytes of a file that is asked here
FOLDERS = ("samples", "seeds")
CORPUS = sorted(
    path
    for folder in FOLDERS
    for path in (SHARED / folder).rglob("*")
    if path.is_file() and path.stat().st_size <= LARGEST and "hostile" not in path.parts
)
_PERCENT_RANGE = re.compile(r"95% likely ([-+−][\d,.]+)% to")


def list_impossible(answer: Answer) -> list[str]:
    """What cannot be, read from the frames anew: by plain loops, not by the product's rules."""
    faults = []
    for frame in (answer.rows, *answer.parts.values()):
        for row in frame.iter_rows(named=True):
            for column, value in row.items():
                if not isinstance(value, int | float):
                    continue
                if column in (
                    "share",
                    "roof_share",
                    "gap_share",
                    "busy_share",
                    "comm_share",
                    "exposed_share",
                ):
                    faults += [f"{column} {value}"] * (value > 1.05)
                faults += [f"{column} {value}"] * (column.endswith("_pct") and value < -105)
                faults += [f"{column} {value}"] * (column == "busy_ns" and value < 0)
            pairs = (("self_ns", "inclusive_ns"), ("busy_ns", "wall_ns"))
            for part, whole in pairs:
                if row.get(part) is not None and row.get(whole) is not None:
                    faults += [f"{part} > {whole}: {row}"] * (row[part] > 1.05 * row[whole])
    notes = " ".join(answer.notes)
    faults += [found for found in _PERCENT_RANGE.findall(notes) if float(found.replace(",", "")) < -100]
    return faults


def iter_faults(run: Run) -> Iterator[tuple[str, str]]:
    for view in load_views():
        if view.run_count == 1:
            for fault in list_impossible(ask(view, [run], Look())):
                yield view.name, fault


@pytest.mark.corpus
@pytest.mark.parametrize("path", [*FILES, *CORPUS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_view_of_a_file_prints_what_cannot_be(path: Path) -> None:
    try:
        runs = load(path, cache=False)
    except CaptureError:
        pytest.skip("holds no profile")
    assert [fault for run in runs[:2] for fault in iter_faults(run)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_no_view_of_a_sample_prints_what_cannot_be(name: str) -> None:
    assert [*iter_faults(load(find_sample(name))[0])] == []


@pytest.mark.slow
@pytest.mark.parametrize("pair", [*pairwise(CORPUS)], ids=lambda pair: f"{pair[0].name}/{pair[1].name}")
def test_no_comparison_of_neighbours_prints_what_cannot_be(pair: tuple[Path, Path]) -> None:
    """Files that lie side by side: many are the same program, some have nothing in common."""
    try:
        runs = [load(path)[0] for path in pair]
        answers = [ask(load_view(name), runs, Look()) for name in ("diff", "pair", "shifts")]
    except CaptureError:
        pytest.skip("holds no profile, or cannot be compared")
    for answer in answers:
        assert list_impossible(answer) == []
        if {"low_ns", "median_a_ns"} <= set(answer.rows.columns):
            assert answer.rows.filter(pl.col("low_ns") < -pl.col("median_a_ns") - 1).is_empty()


@pytest.mark.parametrize(
    ("columns", "cleared", "text"),
    [
        ({"name": ["a", "b"], "roof_share": [0.4, 1.2]}, "roof_share", "share of the roof of b, above 100%"),
        (
            {"step": [3, 4], "busy_ns": [5, 9], "wall_ns": [7, 8]},
            "wall_ns",
            "wall time of step 4, shorter than",
        ),
        (
            {"scope": ["f", "g"], "self_ns": [5, 9], "inclusive_ns": [7, 8]},
            "self_ns",
            "self time of g, longer",
        ),
        ({"name": ["a", "b"], "share": [0.4, 3.0]}, "share", ": share of b, above 100%"),
        (
            {"name": ["a", "b"], "change_low_pct": [-99.0, -233.0]},
            "change_low_pct",
            "change low of b, a fall by more",
        ),
    ],
)
def test_an_impossible_figure_is_cleared_and_said(
    columns: dict[str, list[object]], cleared: str, text: str
) -> None:
    table, notes = clear_contradictions(pl.DataFrame(columns))
    assert table[cleared].to_list() == [columns[cleared][0], None]
    assert table.drop(cleared).equals(pl.DataFrame(columns).drop(cleared))
    assert [text in note and note.startswith("impossible, so left out: ") for note in notes] == [True]


def test_possible_figures_are_left_alone_and_nothing_is_said() -> None:
    table = pl.DataFrame({"name": ["a"], "roof_share": [1.04], "share": [1.0], "behind_share": [2.0]})
    cleared, notes = clear_contradictions(table)
    assert cleared.equals(table) and notes == []


def test_a_row_above_its_roof_has_no_share_and_its_rate_stays() -> None:
    roof = {"read_bytes_per_s": 1e9, "source": "measured"}
    rows = [
        {"name": "fast", "dur": 1000, "bytes": 5e3, "step": 0},
        {"name": "slow", "dur": 9000, "bytes": 5e3, "step": 0},
    ]
    answer = ask(load_view("kernels"), [made(rows, roof=roof)], Look())
    shares = dict(answer.rows.select("name", "roof_share").iter_rows())
    assert shares["fast"] is None and shares["slow"] == pytest.approx(5 / 9)
    assert answer.rows.filter(name="fast")["gb_per_s"].item() == pytest.approx(5)
    assert any(n.startswith("impossible, so left out: share of the roof of fast") for n in answer.notes)


def test_files_are_there() -> None:
    assert len(FILES) > 40 and FIXTURES.exists()
