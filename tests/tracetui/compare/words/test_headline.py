"""The one line of a comparison, by value."""

import re
from dataclasses import replace

import polars as pl

from tests.tracetui.runs import made, recording
from tracetui.compare.diff import change_ns, compare_runs
from tracetui.compare.pairing.comparability import Comparability
from tracetui.compare.words.decision import count_verdicts, format_headline
from tracetui.look import Look


def test_the_weightiest_change_and_the_counts() -> None:
    before, after = recording("a", noise=1), recording("b", noise=2, slow={"norm": 1.5, "attn.q": 0.5})
    actual = compare_runs((before, after), Look(group="op"))
    assert count_verdicts(actual)[:2] == ["1 slower", "1 faster"]
    assert format_headline(actual).startswith(
        "norm slower +"
    )  # 2 · 2 µs a step more, where attn.q spares 2 · 0.5 µs
    total = actual.rows["total_b_ns"].sum() / actual.rows["total_a_ns"].sum() - 1
    assert format_headline(actual).split("; ")[1] == f"kernels {total:+.1%}"


def test_a_number_is_said_to_be_one_of_a_layer() -> None:
    actual = compare_runs(
        (recording("a", noise=1), recording("b", noise=2, slow={"norm": 2})), Look(group="layer")
    )
    assert re.match(r"layer [01] slower \+.*; kernels \S+; 2 slower", format_headline(actual, "layer"))


def test_nothing_changed_and_nothing_to_judge_by() -> None:
    one = recording("a", noise=1)
    assert (
        format_headline(compare_runs((one, one), Look())) == "no row evidently changed; kernels +0.0%; 8 same"
    )
    bare = [made([{"name": "gemm", "dur": d, "count": 4, "lens": "gpu"}]) for d in (10, 30)]
    assert format_headline(compare_runs((bare[0], bare[1]), Look())) == "kernels +200.0%; 1 undecided"


def test_a_row_with_nearly_enough_evidence_is_named() -> None:
    before, after = recording("a", noise=1), recording("b", noise=1, slow={"norm": 1.5})
    actual = compare_runs((before, after), Look(group="op"))
    unsure = pl.col("verdict").replace("slower", "~")
    bare = actual.rows.with_columns(verdict=unsure, p_adjusted=pl.when(name="norm").then(0.06).otherwise(0.9))
    output = format_headline(replace(actual, rows=bare))
    assert output.startswith("no row evidently changed, nearest norm +50.0% (p 0.06); ")
    sure = bare.with_columns(p_adjusted=pl.lit(0.9))
    assert format_headline(replace(actual, rows=sure)).startswith("no row evidently changed; ")


def test_a_long_name_leaves_room_for_the_rest() -> None:
    before, after = recording("a", noise=1), recording("b", noise=2, slow={"norm": 1.5})
    actual = compare_runs((before, after), Look(group="op"))
    name = "void " + "at::native::" * 9 + "norm"
    longer = actual.rows.with_columns(name=pl.col("name").replace("norm", name))
    output = format_headline(replace(actual, rows=longer))
    assert re.match(r"void at::native:….{12}norm slower \+[45]\d\.\d% in decode; kernels ", output)


def test_what_may_not_be_compared_says_so_first() -> None:
    one = recording("a", noise=1)
    actual = replace(compare_runs((one, one), Look()), comparability=Comparability(0.1, ("another model",)))
    assert format_headline(actual).startswith("NOT comparable; ")


def test_a_weight_is_the_change_of_the_medians_over_the_whole_run() -> None:
    """48 steps of two layers at 4 µs each; in b they take half as long again."""
    actual = compare_runs((recording("a"), recording("b", slow={"norm": 1.5})), Look(group="op"))
    row = actual.rows.with_columns(weight=change_ns()).filter(name="norm").row(0, named=True)
    assert abs(row["weight"] / (48 * 2 * 2000) - 1) < 0.05
