"""Rows grouped through one number: the same groups as a dictionary of Python's finds."""

from collections import defaultdict
from typing import Any

import polars as pl
import pytest

from tracetui.analysis.frames import codes
from tracetui.analysis.frames.codes import group_by_packed_key

WORDS = ["a", None, "ä", "b", "a", "", None]
NUMBERS = [-3, 7, None, 1 << 40]
ROWS = 840


@pytest.fixture(params=[0, 1 << 30], ids=["packed", "plain"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "_MIN_ROWS", request.param)


def frame(*, widest: int = 1 << 40) -> pl.DataFrame:
    number = [widest if n == 1 << 40 else n for n in NUMBERS]
    return pl.DataFrame(
        {
            "word": pl.Series([WORDS[i % 7] for i in range(ROWS)], dtype=pl.Categorical()),
            "closed": pl.Series(["xy"[i % 5 == 0] for i in range(ROWS)], dtype=pl.Enum(["x", "z", "y"])),
            "number": pl.Series([number[i % 4] for i in range(ROWS)], dtype=pl.Int64),
            "small": pl.Series([i % 3 for i in range(ROWS)], dtype=pl.Int32),
            "text": pl.Series([f"{i % 2}" for i in range(ROWS)], dtype=pl.String),
            "nothing": pl.Series([None] * ROWS, dtype=pl.String),
            "dur": range(ROWS),
        }
    )


def by_hand(rows: pl.DataFrame, by: list[str]) -> dict[tuple[Any, ...], tuple[int, int]]:
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in rows.iter_rows(named=True):
        sums[tuple(row[c] for c in by)].append(row["dur"])
    return {key: (len(durs), sum(durs)) for key, durs in sums.items()}


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    "by",
    [
        ["word"],
        ["word", "number"],
        ["number", "closed", "small", "word"],
        ["nothing", "word"],
        ["word", "text"],  # a text has no code
    ],
    ids="-".join,
)
def test_groups_are_those_of_a_dictionary(by: list[str]) -> None:
    rows = frame()
    actual = group_by_packed_key(rows.lazy(), by, (pl.len().alias("n"), pl.col("dur").sum()))
    assert {key: (n, dur) for *words, n, dur in actual.iter_rows() if (key := tuple(words))} == by_hand(
        rows, by
    )
    assert actual.height == len(by_hand(rows, by))
    assert dict(actual.select(by).schema) == dict(rows.select(by).schema)
    distinct = group_by_packed_key(rows.lazy(), by)
    assert set(distinct.iter_rows()) == set(by_hand(rows, by)) and distinct.height == actual.height


@pytest.mark.usefixtures("_way")
def test_combinations_beyond_one_number_are_grouped_too() -> None:
    rows = frame(widest=(1 << 62) + 5)
    by = ["number", "word", "small"]
    actual = group_by_packed_key(rows.lazy(), by, (pl.len().alias("n"), pl.col("dur").sum()))
    assert {tuple(key): (n, dur) for *key, n, dur in actual.iter_rows()} == by_hand(rows, by)


@pytest.mark.usefixtures("_way")
def test_no_rows_have_no_groups() -> None:
    actual = group_by_packed_key(frame().clear().lazy(), ["word", "number"], (pl.col("dur").sum(),))
    assert actual.is_empty() and actual.columns == ["word", "number", "dur"]
