"""The cleaner: what may reach a terminal."""

import unicodedata

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capture.clean_text import MAX_NAME_CHARS, clean, shorten_middle
from capture.import_log import Log
from capture.run import build_run

HOSTILE = {
    "escape": ("a\x1b[2Jb", "a\ufffd[2Jb"),
    "c1": ("a\x9b2Jb", "a\ufffd2Jb"),
    "nul": ("a\0b", "a\ufffdb"),
    "newline": ("a\r\nb", "a  b"),
    "tab": ("a\tb", "a b"),
    "right-to-left": ("a\u202eb", "ab"),
    "isolate": ("a\u2066b\u2069", "ab"),
    "zero width": ("a\u200bb\ufeff", "ab"),
    "tag": ("a\U000e0041b", "ab"),
    "surrogate": ("a\ud800b", "a\ufffdb"),
    "markup stays": ("k<[/]>[link=x]", "k<[/]>[link=x]"),
    "wide stays": ("核心 kernel", "核心 kernel"),
}


@pytest.mark.parametrize(("raw", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_by_value(raw: str, expected: str) -> None:
    assert clean(raw) == expected


@given(st.text())
def test_nothing_invisible_is_left(raw: str) -> None:
    text = clean(raw)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)
    assert not any(
        unicodedata.bidirectional(c) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI") for c in text
    )
    assert clean(text) == text
    text.encode()


def test_stacked_marks_are_thinned() -> None:
    assert clean("a" + "\u0301" * 50) == "a" + "\u0301" * 4


@given(st.text(min_size=1), st.integers(0, 40))
def test_a_cut_name_keeps_both_ends(text: str, width: int) -> None:
    cut = shorten_middle(text, width)
    assert len(cut) <= width or cut == text
    if len(text) > width >= 3:
        assert cut[0] == text[0] and cut[-1] == text[-1] and "…" in cut


@given(st.lists(st.one_of(st.none(), st.text(), st.sampled_from(["gemm", "a\x1b[2J", "x" * 9])), max_size=6))
@example(["x" * (MAX_NAME_CHARS + 1), "é" + "\u0301" * 9, "\n", None, ""])
def test_texts_of_a_table_are_cleaned_as_one_is(words: list[str | None]) -> None:
    table = pl.DataFrame({"text": words * 3}, schema={"text": pl.String})
    run = build_run("run", {}, pl.DataFrame({"name": ["k"]}), Log(), {"table": table})
    assert run.tables["table"]["text"].to_list() == [w if w is None else clean(w) for w in words * 3]


def test_metadata_of_any_depth_is_clean() -> None:
    meta = {"model": "a\x1b[2Jb", "no\0te": ["a\u202eb", {"inner": ("x\x9b", 3, None)}], "rate": float("inf")}
    run = build_run("n\x1b", meta, pl.DataFrame({"name": ["a"]}), Log())
    assert run.meta == {
        "model": "a\ufffd[2Jb",
        "no\ufffdte": ["ab", {"inner": ["x\ufffd", 3, None]}],
        "rate": None,
    }
