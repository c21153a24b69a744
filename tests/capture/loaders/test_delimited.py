"""Separated values at once and row by row: the same rows, the same account, whatever the text."""

import csv
from decimal import ROUND_HALF_EVEN, Decimal
from io import StringIO

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from capture.import_log import Log
from capture.loaders._delimited import (
    LINE,
    is_blank,
    parse_floats,
    parse_scaled_integers,
    split_delimited,
    split_with_fallback,
)
from capture.loaders._typed_cells import parse_decimal, scale_to_integer
from capture.loaders.plain.generic_table import read_delimited, read_row_by_row
from capture.loaders.plain.table_layout import TableLayout, detect_layout

pytestmark = pytest.mark.usefixtures("splitter")

NUMBERS = st.one_of(
    st.text("0123456789", max_size=20),
    st.from_regex(r"\A[+-]?\d{0,12}\.?\d{0,14}\Z"),
    st.text("0123456789.,+-eE%_ x\t", max_size=40),
    st.sampled_from(
        ["", "nan", "inf", "-0", "1e300", "1e400", "٣", "0x10", "1_000", "9" * 19, "12,345", " 7 ", "50 %"]
    ),
)
WORDS = st.text("ab1 ,;\t|\"'\r\n\0\x0b\x1c\x85é", max_size=6)
CELLS = st.one_of(NUMBERS, WORDS)
QUOTED = CELLS.map(lambda cell: '"' + cell.replace('"', '""') + '"')


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str]:
    """Draw lines, most of which have as many cells as the headings; return them with their separator."""
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    regular = st.lists(st.one_of(CELLS, QUOTED), min_size=6, max_size=6).map(separator.join)
    ragged = st.lists(st.one_of(CELLS, QUOTED), max_size=8).map(separator.join)
    clean = st.lists(NUMBERS, min_size=6, max_size=6).map(
        lambda cells: separator.join(f'"{c}"' if separator in c else c for c in cells)
    )
    lines = draw(st.lists(st.one_of(clean, clean, clean, regular, ragged), max_size=8))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"])), separator


def layout(separator: str) -> TableLayout:
    headings = ["name", "duration_us", "start_ns", "layer", "bytes", "stream"]
    found = detect_layout([separator.join(headings)])
    assert found and found.separator == separator
    return found


def test_lines_that_are_split_one_by_one_keep_their_place() -> None:
    text = b'a,1\n"b,2\nc,3\n,\nd\n'
    rows, bad = split_with_fallback(text, ",", ["0", "1"], lambda line: line.strip('"').split(","))
    assert rows["0"].to_list() == ["a", "b", "c", ""] and rows[LINE].is_sorted()
    assert bad == [4]


@given(tables())
@example(("k,1,2,3,4,5\nk,1.5,2,3,4\nk,1,2,3,4,5,6\n,,,,,\n\nk,x,y,z,,", ","))
@example(('"k ""a"", b",1,2,3,4,5\nk,1,2,3,4,"5', ","))
@example(('"k\nl",1,2,3,4,5\nk,1,2,3,4,5', ","))
@example(("k;1,5;2;3;4,5;5\nk;1.234,5;2;3;4;5", ";"))
def test_plain_rows_are_the_same_at_once_and_one_by_one(table: tuple[str, str]) -> None:
    text, separator = table
    raw = text.replace("\r", "\n").encode()
    at_once, patient = Log(), Log()
    frame = read_delimited(raw, separator, layout(separator), at_once)
    expected = read_row_by_row(raw, separator, layout(separator), patient)
    with_track = frame if "track" in frame.columns else frame.with_columns(track=pl.lit(None, pl.String))
    assert_frame_equal(with_track.select(expected.columns), expected)
    assert (at_once.read, at_once.dropped, at_once.repaired) == (
        patient.read,
        patient.dropped,
        patient.repaired,
    )
    assert sorted(at_once.freeze().notices, key=str) == sorted(patient.freeze().notices, key=str)


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=6), st.booleans())
def test_what_python_writes_is_split_as_python_splits_it(rows: list[list[str]], quoted: bool) -> None:
    rows = [[cell.replace("\r", "").replace("\n", "") for cell in row] for row in rows]
    quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    lines = [_written(row, quoting) for row in rows]
    cells, others = split_delimited("\n".join(lines).encode(), ",", ["a", "b", "c"])
    kept = dict(zip(cells[LINE], cells.drop(LINE).rows(), strict=True))
    kept |= {at: tuple(next(csv.reader([line]))) for at, line in others if line}
    assert kept == {at: tuple(row) for at, row in enumerate(rows)}


def _written(row: list[str], quoting: int) -> str:
    out = StringIO()
    csv.writer(out, quoting=quoting, lineterminator="").writerow(row)  # type: ignore[arg-type]
    return out.getvalue()


@given(st.lists(NUMBERS, max_size=5), st.sampled_from([1, 1000, 10**6, 10**9, 1024]))
@example(
    ["0.0005", "0.0015", "2.5", "-2.5", "9999999999999999", "9999999999999999.5", "10000000000000000"], 3
)
def test_numbers_are_read_as_python_reads_them(texts: list[str], scale: int) -> None:
    def parse(text: str) -> int | None:
        value = scale_to_integer(parse_decimal(text), scale)
        return value if value is not None and abs(value) < 1 << 60 else None

    assert parse_scaled_integers(pl.Series(texts, dtype=pl.String), scale, parse).to_list() == [
        parse(t) for t in texts
    ]


def test_halves_go_to_the_even_number() -> None:
    texts = ["0.5", "1.5", "2.5", "2.4999999", "-0.5", "-1.5"]
    stated = [int(Decimal(text).to_integral_value(ROUND_HALF_EVEN)) for text in texts]
    assert stated == [0, 2, 2, 2, 0, -2]
    assert parse_scaled_integers(pl.Series(texts), 1, lambda text: None).to_list() == stated


@given(st.lists(NUMBERS, max_size=5))
def test_reals_are_read_as_python_reads_them(texts: list[str]) -> None:
    def parse(text: str) -> float | None:
        value = parse_decimal(text)
        return None if value is None else float(value)

    assert parse_floats(pl.Series(texts, dtype=pl.String), parse).to_list() == [parse(t) for t in texts]


@given(st.text())
def test_blanks_are_those_of_python(text: str) -> None:
    assert is_blank(pl.Series([text])).to_list() == [not text.strip()]


@pytest.mark.parametrize("others", [0, 1])
def test_regular_lines_are_not_left_to_python(others: int) -> None:
    """One line that does not fit costs itself, and not the speed of the others."""
    lines = ["k,1,2"] * 100 + ["k,1"] * others
    cells, left = split_delimited("\n".join(lines).encode(), ",", ["a", "b", "c"])
    assert (cells.height, len(left)) == (100, others)


@given(tables(), st.integers(0, 2))
@example(("k,1,2,3,4,5", ","), 1)
@example(('"k\nl",1,2,3,4,5\nk,1,2,3,4,5\n\n\n', ","), 1)
def test_lines_that_are_skipped_are_not_there(table: tuple[str, str], skip: int) -> None:
    raw, separator = table[0].replace("\r", "\n").rstrip("\n").encode(), table[1]
    below = b"\n".join(raw.split(b"\n")[skip:])
    whole, cut = (
        split_delimited(text, separator, list("abcdef"), n) for text, n in ((raw, skip), (below, 0))
    )
    assert_frame_equal(whole.cells, cut.cells)
    assert [o for o in whole.irregular if o[1]] == [o for o in cut.irregular if o[1]]
