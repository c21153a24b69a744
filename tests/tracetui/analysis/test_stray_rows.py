"""Rows that lie far from their step."""

import polars as pl

from tracetui.analysis.stray_rows import with_strays


def strays(rows: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    frame = pl.DataFrame(rows, schema=["step", "t", "dur"], orient="row")
    table = with_strays(frame, ["step"])
    return table.filter("stray").select("step", "t").rows()


def test_a_kernel_far_before_its_step_is_a_stray() -> None:
    body = [(1, 1_000_000 + 10 * i, 10) for i in range(300)]
    assert strays([(1, 0, 5), *body]) == [(1, 0)]
    assert strays([*body, (1, 9_000_000, 5)]) == [(1, 9_000_000)]


def test_a_large_part_is_no_stray_however_far() -> None:
    assert strays([(1, 0, 500), *((1, 1_000_000 + 10 * i, 10) for i in range(300))]) == []


def test_gaps_within_a_step_make_no_strays() -> None:
    assert strays([(1, 0, 5), (1, 40, 5), (1, 90, 5), (1, 130, 5)]) == []
    assert strays([(1, 0, 5)]) == []


def test_each_step_is_judged_by_itself() -> None:
    one = [(1, 10 * i, 10) for i in range(300)]
    two = [(2, 50_000_000 + 10 * i, 10) for i in range(300)]
    assert strays([*one, (2, 10, 1), *two]) == [(2, 10)]
