"""The language of filters: taken apart, and the rows that fit, against a plain recomputation."""

import pytest

from capture.errors import UsageError
from tests.tracetui.runs import decode
from tracetui.filter_syntax import ParsedFilter, parse_filter
from tracetui.look import FilterTerm, Look
from tracetui.views import ask, load_view


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ParsedFilter("")),
        ("gemm|gemv", ParsedFilter("gemm|gemv")),
        ("aten::mm", ParsedFilter("aten::mm")),  # a colon of C++ is no term
        ("(?i:mm)", ParsedFilter("(?i:mm)")),
        ("foo:bar", ParsedFilter("foo:bar")),
        ("op:attn", ParsedFilter("", (FilterTerm("op", "~", "attn"),))),
        ("gemm  op:attn", ParsedFilter("gemm", (FilterTerm("op", "~", "attn"),))),
        ("name:/a b/ x", ParsedFilter("x", (FilterTerm("name", "~", "a b"),))),
        ("layer:3", ParsedFilter("", (FilterTerm("layer", "=", "3"),))),
        (
            "layer:>=3 share:>5",
            ParsedFilter("", (FilterTerm("layer", ">=", "3"),), (FilterTerm("share", ">", "5"),)),
        ),
        ("total:>1.5ms", ParsedFilter("", (), (FilterTerm("total", ">", "1.5ms"),))),
    ],
)
def test_a_filter_is_taken_apart(text: str, parts: ParsedFilter) -> None:
    assert parse_filter(text) == parts


def rows(text: str, name: str = "kernels", **look: str) -> list[dict[str, object]]:
    return ask(load_view(name), [decode()], Look(filter=text, **look)).rows.to_dicts()  # type: ignore[arg-type]


def test_a_word_finds_names_and_ops() -> None:
    """attention is the name of op attn.core, ffn_down that of mlp.down."""
    assert [r["name"] for r in rows("attn")] == ["attention"]
    assert [r["name"] for r in rows("mlp")] == ["ffn_down"]
    assert {r["name"] for r in rows("ffn|norm")} == {"ffn_down", "rmsnorm"}


def test_terms_on_columns_of_events() -> None:
    run = decode()
    kernels = [e for e in run.events.to_dicts() if e["kind"] == "kernel"]
    for text, fits in {
        "op:mlp": lambda e: "mlp" in e["op"],
        "layer:2": lambda e: e["layer"] == 2,
        "layer:<2 phase:decode": lambda e: e["layer"] < 2 and e["phase"] == "decode",
        "step:>=39 category:norm": lambda e: e["step"] >= 39 and e["category"] == "norm",
        "shape:x": lambda e: False,  # this run tells none
    }.items():
        total = sum(e["dur"] for e in kernels if fits(e))
        assert sum(int(str(r["total_ns"])) for r in rows(text)) == total, text


def test_terms_on_columns_of_the_answer() -> None:
    every = {str(r["name"]): r for r in rows("")}
    for text, fits in {
        "share:>5": lambda r: r["share"] > 0.05,
        "share:<=5%": lambda r: r["share"] <= 0.05,
        "cumulative_share:<=50": lambda r: r["cumulative_share"] <= 0.5,
        "total:>100ms": lambda r: r["total_ns"] > 1e8,
        "mean:<21us": lambda r: r["mean_ns"] < 21_000,
        "count:=164": lambda r: r["count"] == 164,
    }.items():
        assert {r["name"] for r in rows(text)} == {n for n, r in every.items() if fits(r)}, text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("share:>x", "needs a number"),
        ("total:>5", "wrong unit"),
        ("layer:>5ms", "wrong unit"),
        ("step:3k", "wrong unit"),
        ("layer:5%", "wrong unit"),
        ("nothing:>5", "has no numeric column nothing"),
        ("op:[", "not a regular expression"),
    ],
)
def test_what_is_no_filter_is_said_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        rows(text)


def test_shares_are_of_all_rows_that_a_term_hides_too() -> None:
    (row,) = rows("op:mlp")
    assert row["share"] == next(r["share"] for r in rows("") if r["name"] == "ffn_down")
