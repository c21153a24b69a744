"""The points of a roofline and their picture, worked out on paper."""

import pytest

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.roofline_points import points
from tracetui.look import Look
from tracetui.views import Answer, ask, ink, view
from tracetui.views.ink import Size

ROOF = {
    "source": "measured", "when": "2026-01-02 03:04 UTC", "read_bytes_per_s": 100e9, "copy_bytes_per_s": 60e9,
    "flop_per_s": {"bf16": 1e12}, "floor_ns": 10, "cache": "cache",
}  # fmt: skip
ROWS = (
    ("gemm", "mlp.up", "matmul", 2000, 1e6, 5e4),  # 20 FLOP a byte, 500 GFLOP/s, 25 GB/s
    ("gemm", "mlp.up", "matmul", 1000, 5e5, 2.5e4),
    ("gemm", "mlp.up", "matmul", 1000, None, None),
    ("norm", "norm", "norm", 1000, 1e4, 4e4),  # a quarter FLOP a byte, 10 GFLOP/s, 40 GB/s
    ("copy", "copy", "copy", 500, 0.0, 1e4),
)


def run(**meta: object) -> Run:
    rows = [
        {
            "kind": "kernel",
            "name": n,
            "op": op,
            "category": c,
            "dur": d,
            "flops": f,
            "bytes": b,
            "lens": "gpu",
        }
        for n, op, c, d, f, b in ROWS
    ]
    return made(rows, dtype="bfloat16", **meta)


def test_points_are_of_the_launches_whose_work_is_known() -> None:
    table = {r["op"]: r for r in points(run(roof=ROOF), Look(), "op").to_dicts()}
    gemm, norm, copy = (table[op] for op in ("mlp.up", "norm", "copy"))
    assert (gemm["total_ns"], gemm["count"], gemm["known_share"]) == (4000, 3, 0.75)
    assert (gemm["intensity"], gemm["gflop_per_s"], gemm["gb_per_s"]) == (20, 500, 25)
    assert gemm["share"] == pytest.approx(4000 / 5500)
    assert gemm["roof_share"] == pytest.approx(0.5) and gemm["bound"] == "compute"  # 1.5 MFLOP: 1.5 of 3 µs
    assert (norm["intensity"], norm["gflop_per_s"], norm["gb_per_s"]) == (0.25, 10, 40)
    assert norm["roof_share"] == pytest.approx(0.4) and norm["bound"] == "memory"
    assert (copy["intensity"], copy["gflop_per_s"], copy["known_share"]) == (None, None, 0)


def answer() -> Answer:
    return ask(view("roofline"), [run(roof=ROOF)], Look())


def test_the_answer_names_its_points_its_roof_and_what_is_not_known() -> None:
    found = answer()
    assert found.rows.select("mark", "op").rows() == [("a", "mlp.up"), ("b", "norm"), (None, "copy")]
    assert any("100.0 GB/s, 1,000 GFLOP/s, measured 2026-01-02" in note for note in found.notes)
    # 1,000 ns of the products and the 500 of the copy, of 5,500
    assert "no operations or bytes are known of 27.3% of the time: mlp.up, copy" in found.notes
    assert any("no roof is known" in note for note in ask(view("roofline"), [run()], Look()).notes)


@pytest.mark.parametrize("size", [Size(80, 18), Size(120, 34), Size(80, 18, ascii=True)])
def test_the_picture_has_each_point_at_its_place(size: Size) -> None:
    """Letters stand as far apart as their logarithms: a is right of b and above it, below the roof's bend."""
    lines = ink.plain(view("roofline").draw(answer(), Look(), size)).splitlines()  # type: ignore[misc]
    assert len(lines) <= size.height and max(map(len, lines)) <= size.width
    picture = [ln for ln in lines[1:] if any(c in ln for c in ("│┤" if not size.ascii else "|+"))]
    places = {
        c: (ln.index(c), y)
        for y, ln in enumerate(picture)
        for c in "ab"
        if c in ln.replace("FLOP a byte", "")
    }
    assert places["a"][0] > places["b"][0] and places["a"][1] < places["b"][1]
    assert "100.0 GB/s and 1.000 TFLOP/s" in lines[0]
    text = "\n".join(lines)
    assert "FLOP a byte" in text and "mlp.up" in text
    assert "\n".join(picture).isascii() or not size.ascii


def test_the_marks_lie_on_logarithmic_axes() -> None:
    """A tenth, one and ten lie evenly; each mark stands in its own column and line."""
    from tracetui.views.charts import Mark, log_chart

    marks = [Mark(c, (10.0**n, 10.0 ** (2 * n)), "cat_matmul") for c, n in (("x", -1), ("y", 0), ("z", 1))]
    lines = log_chart([], marks, Size(80, 24), title="t", x_label="u")
    at = {
        c: (text.index(c), i)
        for i, text in enumerate(ink.plain(lines).splitlines())
        for c in "xyz"
        if c in text
    }
    (x, down), (y, middle), (z, up) = at["x"], at["y"], at["z"]
    assert abs((z - y) - (y - x)) <= 1 and abs((down - middle) - (middle - up)) <= 1 and up < middle < down
    assert {s.style for ln in lines for s in ln if s.text in "xyz" and s.text} == {"cat_matmul"}
    assert log_chart([], [], Size(80, 24), title="t", x_label="u") == []
    assert log_chart([], marks, Size(20, 5), title="t", x_label="u") == []


def test_work_done_in_no_time_has_no_mark() -> None:
    """A clock that is too coarse says 0 ns: how fast that was is not known."""
    rows = [
        {"kind": "kernel", "name": n, "op": n, "dur": dur, "flops": 1e6, "bytes": 5e4, "lens": "gpu"}
        for n, dur in (("gemm", 2000), ("quick", 0))
    ]
    shown = view("roofline")
    answer = ask(shown, (made(rows, roof=ROOF),), Look())
    assert dict(answer.rows.select("op", "mark").iter_rows()) == {"gemm": "a", "quick": None}
    assert "quick" in ink.plain(shown.draw(answer, Look(), Size(100, 30)))  # type: ignore[misc]
