"""The compiled scanner splits separated values as Python's csv does, or says that it cannot."""

import csv
import gc
from io import StringIO

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capture.extensions import OFF_VARIABLE
from capture.loaders import _delimited
from capture.loaders._delimited import split_delimited
from capture.loaders._scan import load_scanner, read_arrow_columns

pytestmark = pytest.mark.skipif(load_scanner() is None, reason="the compiled scanner is not built")

NEAR_SHORT = st.text("ab é", min_size=10, max_size=15)  # around the size from which letters stand elsewhere
CELLS = st.one_of(st.text("ab ,;'\t\0é", max_size=30), NEAR_SHORT, st.text("x", min_size=100, max_size=140))


def cells(
    text: bytes, width: int, separator: str = ",", *, quoted: bool = False, threads: int = 2
) -> list[tuple[str, ...]] | None:
    """Return the rows that the scanner makes of a text; None where it refuses it."""
    module = load_scanner()
    assert module is not None
    found = module.cells(text, separator, width, quoted, threads)
    return None if found is None else read_arrow_columns(found, map(str, range(width))).rows()


def written(rows: list[list[str]], separator: str, quoting: int) -> bytes:
    out = StringIO()
    csv.writer(out, delimiter=separator, quoting=quoting, lineterminator="\n").writerows(rows)  # type: ignore[arg-type]
    return out.getvalue().encode()


@given(
    st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=8),
    st.sampled_from(",;\t|"),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.booleans(),
)
@example([["twelve chars", "thirteen char", ""]] * 3, ",", csv.QUOTE_ALL, True)
def test_what_python_writes_is_cut_as_it_was(
    rows: list[list[str]], separator: str, quoting: int, is_ended: bool
) -> None:
    text = written(rows, separator, quoting)
    assert cells(text if is_ended else text[:-1], 3, separator) == [tuple(row) for row in rows]


@pytest.mark.corpus
@pytest.mark.parametrize("threads", [0, 1, 2, 3, 7, 1000])
def test_every_thread_writes_its_own_rows(threads: int) -> None:
    """Long cells that repeat, that differ, and that come again after others took their place."""
    rows = [(str(i), f"kernel number {i % 500} of many", f"{i * 10**12}") for i in range(150_000)]
    text = "".join(f'{a},"{b}",{c}\n' for a, b, c in rows)
    assert len(text) > 5 << 20
    assert cells(text.encode(), 3, threads=threads) == rows


def test_columns_outlive_their_text() -> None:
    module = load_scanner()
    assert module is not None
    kept = read_arrow_columns(
        module.cells(b"one that is long enough,2\n" * 5, ",", 2, False, 2), "ab"
    ).filter(pl.col("b") == "2")
    gc.collect()
    assert kept.rows() == [("one that is long enough", "2")] * 5


@pytest.mark.parametrize(
    "line",
    [
        b'"a ""b""",1', b'a"b,1', b'"a"b,1', b'"a,1', b'"a\nb",1', b' "a",1', b"a", b"a,1,2", b"",
        b'a,"1', b'"', b',""",',
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("before", [0, 3, 400_000])
@pytest.mark.parametrize("behind", [1, 2, 400_000])
def test_what_is_not_regular_is_refused_wherever_it_stands(line: bytes, before: int, behind: int) -> None:
    assert cells(b"k,22\n" * before + line + b"\n" + b"k,22\n" * behind, 2) is None


@pytest.mark.parametrize(
    ("text", "separator", "width"),
    [(b"", ",", 1), (b"a\n", ",", 0), (b"a\n", ",", -1), (b"a\n", ",", 1 << 40), (b"\n" * 99, ",", 2),
     (b"a\n", "\n", 1), (b"a\n", '"', 1), ("a\u00e9b\n".encode(), "\u00e9", 2)],
)  # fmt: skip
def test_what_no_table_can_be_is_refused(text: bytes, separator: str, width: int) -> None:
    assert cells(text, width, separator) is None


def test_lines_that_are_to_begin_with_a_quote_do_so() -> None:
    text = b'"a",1\n"b","2"\n'
    assert cells(text, 2, quoted=True) == [("a", "1"), ("b", "2")]
    assert cells(text + b'c,"3"\n', 2) == [("a", "1"), ("b", "2"), ("c", "3")]
    assert cells(text + b'c,"3"\n', 2, quoted=True) is None


def test_empty_lines_at_the_end_are_none() -> None:
    assert cells(b"a,1\nb,2\n\n\n", 2) == [("a", "1"), ("b", "2")]


def test_a_table_is_split_without_the_scanner_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'h\n1,"a, b",x\n2,,"12345678901234"\n' + b"3,c,d\n" * 10
    compiled = split_delimited(text, ",", ["a", "b", "c"], 1)
    monkeypatch.setenv(OFF_VARIABLE, "1")
    plain = split_delimited(text, ",", ["a", "b", "c"], 1)
    assert compiled.cells.equals(plain.cells)
    assert compiled.irregular == plain.irregular == []


def test_polars_is_not_asked_for_what_is_regular(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_delimited.pl, "read_csv", None)
    assert split_delimited(b'1,"a"\n2,b\n', ",", ["a", "b"]).cells.drop("line").rows() == [
        ("1", "a"),
        ("2", "b"),
    ]
