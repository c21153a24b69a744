"""Rows of numbers and distinct words, against plain dictionaries and sets."""

import random
from typing import Literal

import polars as pl
import pytest

from capture.dense_lookup import (
    FEW_ROWS,
    build_columns,
    drop_columns,
    encode_categories,
    encode_dense,
    fill_nulls,
    filter_rows,
    find_distinct,
    find_positions,
    find_rows,
    has_value,
    keep_where,
    put_columns,
)

# the last: more than FEW_ROWS
WORDS = ([], [None], ["a"], ["b", None, "a", "b", "", "a"], ["b", None, "a", ""] * FEW_ROWS)


@pytest.mark.parametrize("spread", [1, 50, 1 << 40])
@pytest.mark.parametrize("keep", ["first", "last"])
def test_rows_are_those_of_a_dictionary(spread: int, keep: Literal["first", "last"]) -> None:
    dice = random.Random(spread)
    keys = [dice.choice([None, dice.randint(-900, 900) * spread]) for _ in range(1500)]
    asked = [dice.choice([None, dice.randint(-1000, 1000) * spread]) for _ in range(2000)]
    known: dict[int | None, int] = {}
    for row, key in enumerate(keys):
        if keep == "last" or key not in known:
            known[key] = row
    known.pop(None)
    actual = find_rows(pl.Series(keys), pl.Series(asked), keep=keep)
    assert actual.to_list() == [known.get(number) for number in asked]


def test_rows_of_no_key_are_null() -> None:
    none = pl.Series([None, None], dtype=pl.Int64)
    assert find_rows(none, pl.Series([1, None, 2]), keep="first").to_list() == [None, None, None]
    assert find_rows(pl.Series([5]), none, keep="last").to_list() == [None, None]


@pytest.mark.parametrize("words", WORDS)
def test_distinct_words_are_those_of_a_set(words: list[str | None]) -> None:
    actual = find_distinct(pl.Series(words, dtype=pl.String).cast(pl.Categorical())).to_list()
    assert sorted(actual) == sorted(set(words) - {None})


@pytest.mark.parametrize("spread", [1, 1 << 40])
@pytest.mark.parametrize("numbers", [[], [None], [3, None, -3, 3, 7, -3], [-5, 5]])
def test_a_kind_is_a_number(spread: int, numbers: list[int | None]) -> None:
    keys = pl.Series([None if n is None else n * spread for n in numbers], dtype=pl.Int64)
    kinds, rows = encode_dense(keys)
    assert keys.gather(rows).gather(kinds).to_list() == keys.to_list()
    assert rows.len() == len(set(numbers) - {None})


@pytest.mark.parametrize("words", WORDS)
def test_codes_of_categories_are_places_among_distinct_words(words: list[str | None]) -> None:
    codes, distinct = encode_categories(pl.Series(words, dtype=pl.Categorical()))
    assert sorted(distinct.to_list()) == sorted(set(words) - {None})
    assert [None if code is None else distinct[code] for code in codes] == words


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("distinct", [[], ["a", None, "c", "b"]])
def test_positions_are_those_in_the_list(words: list[str | None], distinct: list[str | None]) -> None:
    column, others = (pl.Series(texts, dtype=pl.Categorical()) for texts in (words, distinct))
    expected = [distinct.index(word) if word is not None and word in distinct else None for word in words]
    assert find_positions(column, others).to_list() == expected


def test_columns_are_put_and_dropped_as_polars_does() -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [True, False]})
    columns = pl.Series("b", ["y", "z"]), pl.Series("d", [0.5, None]), pl.Series("a", [3, 4])
    before = frame.clone()
    assert put_columns(frame, *columns).equals(frame.with_columns(*columns))
    assert put_columns(frame).equals(frame)
    assert drop_columns(frame, "a", "missing").equals(frame.drop("a"))
    assert frame.equals(before)


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.Categorical()])
def test_nulls_are_filled_as_polars_coalesces(dtype: pl.DataType) -> None:
    column, others = (
        pl.Series(v, dtype=pl.String).cast(dtype) for v in (["1", None, None], ["2", "3", None])
    )
    assert (
        fill_nulls(column, others).to_list() == pl.select(pl.coalesce(column, others)).to_series().to_list()
    )


COLUMNS = (
    pl.Series("number", [3, None, -1, 3]),
    pl.Series("text", ["a", None, "", "a"], dtype=pl.Categorical()),
    pl.Series("share", [float("nan"), None, 0.5, 1.0]),
    pl.Series("full", [1, 2, 3, 4]),
    pl.Series("none", [None] * 4, dtype=pl.Int64),
)


@pytest.mark.parametrize("condition", [[True, False, None, True], [False] * 4, [None] * 4, [True] * 4])
def test_rows_are_filtered_and_kept_as_polars_does(condition: list[bool | None]) -> None:
    frame, mask = pl.DataFrame(COLUMNS), pl.Series(condition, dtype=pl.Boolean)
    for part, chosen in ((frame, mask), (frame.clear(), mask.clear())):
        assert filter_rows(part, chosen).equals(part.filter(chosen))
        for column in part.get_columns():
            kept = pl.select(pl.when(chosen).then(column).alias(column.name)).to_series()
            assert keep_where(column, chosen).equals(kept, check_dtypes=True, check_names=True)


@pytest.mark.parametrize("column", COLUMNS)
def test_rows_with_a_value_are_those_that_polars_finds(column: pl.Series) -> None:
    for part in (column, column.clear()):
        assert has_value(part).to_list() == part.is_not_null().to_list()


def test_columns_of_rows_are_those_of_a_frame() -> None:
    schema = {"text": pl.Categorical(), "flops": pl.Float64(), "size": pl.Int32(), "flag": pl.Boolean()}
    rows = [("a", 1, None, True), (None, None, 3, None), ("b", 2.5, 4, False)]
    assert pl.DataFrame(build_columns(rows, schema)).equals(pl.DataFrame(rows, schema=schema, orient="row"))
