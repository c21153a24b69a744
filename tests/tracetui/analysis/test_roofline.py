"""Rates and roofs worked out on paper, from a native file of six ops."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture import device_roofs
from capture.load_runs import load, load_all
from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.analysis.layers import compute_layer_table
from tracetui.analysis.roofline import compute_roofline_points
from tracetui.look import Look, Terms
from tracetui.report_formats import format_report
from tracetui.views import Answer, ask, ink, load_view
from tracetui.views.ink import DrawSize

ROOF = {
    "source": "measured", "when": "2026-01-02 03:04 UTC", "read_bytes_per_s": 100e9, "copy_bytes_per_s": 60e9,
    "flop_per_s": {"fp32": 0.5e12, "bf16": 1e12}, "floor_ns": 2000, "cache": "cache",
}  # fmt: skip

OPS = [
    {"id": 0, "name": "matmul", "op": "mlp.down", "layer": 0, "bytes": [4e6, 0], "flops": [2e6, 0]},
    {"id": 1, "name": "attention", "op": "attn.core", "layer": 0, "bytes": [1000, 500], "flops": [0, 100]},
    {"id": 2, "name": "norm", "op": "norm", "layer": 0, "bytes": [4000, 0], "flops": [1000, 0]},
    {"id": 3, "name": "wide", "op": "mlp.up", "layer": 1, "bytes": [4e6, 0], "flops": [8e9, 0]},
    {"id": 4, "name": "again", "op": "mlp.down", "layer": 1, "bytes": [1e6, 0], "flops": [0, 0]},
    {"id": 5, "name": "untold", "op": "sample"},
]
STEPS = (
    (1, 100, [50_000, 5_100, 10_000, 10_000_000, 5_000, 700]),
    (2, 200, [30_000, 5_100, 10_000, 10_000_000, 5_000, 700]),
)

COLUMNS = ("gb_per_s", "gflop_per_s", "roof_share", "bound")


def recording(folder: Path, **meta: Any) -> Path:
    lines: list[dict[str, Any]] = [
        {"kind": "run", "schema": 1, "name": "toy", "meta": {"dtype": "float16", **meta}},
        {"kind": "plan", "ops": [{"kind": "kernel", "lens": "wall", **op} for op in OPS]},
    ]
    lines += [
        {
            "kind": "columns",
            "step": n,
            "phase": "decode",
            "context": context,
            "op": list(range(6)),
            "dur": durs,
        }
        for n, context, durs in STEPS
    ]  # fmt: skip
    path = folder / "toy.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def toy(folder: Path, **meta: Any) -> Run:
    (run,) = load(recording(folder, **meta), cache=False)
    return run


def by_name(table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {str(r["name"]): r for r in table.to_dicts()}


def test_rates_shares_and_words(tmp_path: Path) -> None:
    rows = by_name(compute_kernel_table(toy(tmp_path, roof=ROOF), Look()))
    actual = {
        n: tuple(r[c] for c in ("gb_per_s", "gflop_per_s", "roof_share", "bound")) for n, r in rows.items()
    }
    assert actual["matmul"] == (pytest.approx(100.0), pytest.approx(50.0), pytest.approx(1.0), "memory")
    # 1,000 + 500 · 100 and 1,000 + 500 · 200 bytes in 10.2 µs; 1.52 µs at best, 4 µs for two launches
    assert actual["attention"] == (
        pytest.approx(152_000 / 10_200), pytest.approx(30_000 / 10_200), pytest.approx(1_520 / 10_200),
        "floor",
    )  # fmt: skip
    assert actual["norm"] == (pytest.approx(0.4), pytest.approx(0.1), pytest.approx(0.004), "floor")
    assert actual["wide"] == (pytest.approx(0.4), pytest.approx(800.0), pytest.approx(0.8), "compute")
    assert actual["again"] == (pytest.approx(200.0), None, pytest.approx(2.0), "cache")
    assert actual["untold"] == (None, None, None, None)


@pytest.mark.parametrize("per", ["step", "token"])
def test_rates_do_not_depend_on_what_totals_are_divided_by(per: Any, tmp_path: Path) -> None:
    run = toy(tmp_path, roof=ROOF)
    columns = ["name", *COLUMNS]
    assert compute_kernel_table(run, Look(per=per))[columns].equals(
        compute_kernel_table(run, Look())[columns]
    )


def test_the_roof_of_arithmetic_is_that_of_the_dtype(tmp_path: Path) -> None:
    rows = by_name(compute_kernel_table(toy(tmp_path, roof=ROOF, dtype="float32"), Look()))
    assert rows["wide"]["roof_share"] == pytest.approx(1.6)


@pytest.mark.parametrize(("products", "share"), [("bf16 by autocast", 0.8), ("fp32", 1.6), ("tf32", 0.2)])
def test_the_word_for_products_decides_where_a_run_has_one(
    products: str, share: float, tmp_path: Path
) -> None:
    roof = {**ROOF, "flop_per_s": {"fp32": 0.5e12, "bf16": 1e12, "tf32": 4e12}}
    rows = by_name(compute_kernel_table(toy(tmp_path, roof=roof, dtype="float32", products=products), Look()))
    assert rows["wide"]["roof_share"] == pytest.approx(share)


def test_a_group_that_holds_work_nobody_told_has_no_rate(tmp_path: Path) -> None:
    table = compute_kernel_table(toy(tmp_path, roof=ROOF), Look(group="layer"))
    rates = {r["layer"]: r["gb_per_s"] for r in table.to_dicts()}
    assert rates[None] is None
    assert rates[0] == pytest.approx((8e6 + 152_000 + 8_000) / (80_000 + 10_200 + 20_000))


def read_beside(folder: Path, rates: list[float], steps: list[int], share: float, **meta: Any) -> Run:
    """A run whose host reads at these rates, each for so many steps; its product is at `share` of each."""
    size, at = 50_000_000, 1_000
    lines: list[dict[str, Any]] = [
        {"kind": "run", "schema": 1, "name": "toy", "meta": {"roof": ROOF, **meta}},
        {"kind": "plan", "ops": [
            {"kind": "kernel", "lens": "wall", "id": 0, "name": "gate_up", "bytes": [size, 0]}]},
    ]  # fmt: skip
    number = 0
    for rate, count in zip(rates, steps, strict=True):
        lines.append({"kind": "counter", "name": "memory_read", "t": at, "value": rate, "unit": "B/s"})
        for _ in range(count):
            took = round(1e9 * size / (share * rate))
            facts = {"step": number, "phase": "decode"}
            lines.append({"kind": "columns", **facts, "t": at + 1, "op": [0], "dt": [0], "dur": [took]})
            lines.append({"kind": "step", "name": "decode", **facts, "t": at + 1, "dur": took})
            number, at = number + 1, at + took + 10
    path = folder / "beside.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run,) = load(path, cache=False)
    return run


@pytest.mark.parametrize("steps", [[10, 10], [3, 17], [18, 2]])
def test_a_share_is_of_the_roof_of_its_time(steps: list[int], tmp_path: Path) -> None:
    """A neighbour takes half of the memory's speed for some of the steps: the shares stay."""
    run = read_beside(tmp_path, [90e9, 45e9], steps, 0.7)
    (row,) = compute_kernel_table(run, Look()).to_dicts()
    assert row["roof_share"] == pytest.approx(0.7, rel=1e-4)
    notes = ask(load_view("kernels"), [run], Look()).notes
    mean = sum(steps) / (steps[0] / 90 + steps[1] / 45)
    assert any(n.startswith(f"roof: {mean:.2f} GB/s (45.00 to 90.00)") for n in notes), notes
    assert any("read beside the run" in n for n in notes)
    assert any(n.startswith("memory bandwidth varied (45.00 to 90.00 GB/s) during the run") for n in notes)


def test_a_steady_host_is_not_accused(tmp_path: Path) -> None:
    notes = ask(load_view("kernels"), [read_beside(tmp_path, [90e9, 86e9], [5, 5], 0.7)], Look()).notes
    assert not any("varied" in n for n in notes)


@pytest.mark.parametrize(("read", "word"), [(2e9, "memory"), (1e8, "cache"), (None, "cache")])
def test_what_streams_its_weights_is_not_called_cache(read: float | None, word: str, tmp_path: Path) -> None:
    """50 MB a call at 103 % of the roof: of two gigabytes a token no cache holds them until the next."""
    meta = {} if read is None else {"bytes_per_token": read}
    (row,) = compute_kernel_table(read_beside(tmp_path, [90e9], [4], 1.03, **meta), Look()).to_dicts()
    assert (row["roof_share"], row["bound"]) == (pytest.approx(1.03, rel=1e-4), word)


def test_layers_carry_the_same(tmp_path: Path) -> None:
    table = compute_layer_table(toy(tmp_path, roof=ROOF), Look(), "op")
    (down,) = table.filter(pl.col("layer") == 1, pl.col("op").cast(pl.String) == "mlp.down").to_dicts()
    assert (down["gb_per_s"], down["roof_share"], down["bound"]) == (
        pytest.approx(200.0),
        pytest.approx(2.0),
        "cache",
    )


def test_the_heat_map_says_it_under_the_cursor_and_below_each_op(tmp_path: Path) -> None:
    answer = ask(load_view("layers"), [toy(tmp_path, roof=ROOF)], Look(cursor=(1, 0)))
    draw = load_view("layers").draw
    assert draw
    text = ink.format_plain(draw(answer, Look(cursor=(1, 0)), ink.DrawSize(120, 20)))
    assert "80.0% of the roof (compute)  0.400 GB/s  800.0 GFLOP/s" in text
    # mlp.down of layer 1 takes 10 µs for work of 20 µs at best: no share, and none of the op
    assert "80%         –" in text
    assert any(n.startswith("impossible, so left out: share of the roof of mlp.down") for n in answer.notes)


def test_without_a_roof_there_is_no_share_and_without_work_no_rate(tmp_path: Path) -> None:
    table = compute_kernel_table(toy(tmp_path), Look())
    assert "gb_per_s" in table.columns and not {"roof_share", "bound"} & set(table.columns)
    answer = ask(load_view("kernels"), [toy(tmp_path)], Look())
    assert any(n.startswith("no roof is known") for n in answer.notes)
    bare = ask(load_view("kernels"), [made([{"name": "a", "dur": 5}], roof=ROOF)], Look())
    assert not {"gb_per_s", "gflop_per_s", "roof_share", "bound"} & set(bare.rows.columns)
    assert not any("roof" in n for n in bare.notes)


@pytest.mark.parametrize("told", [{"read_bytes_per_s": 0}, "fast", {"read_bytes_per_s": "1e9"}, [], {}])
def test_a_roof_that_cannot_be_believed_is_none(told: Any, tmp_path: Path) -> None:
    assert "roof_share" not in compute_kernel_table(toy(tmp_path, roof=told), Look()).columns


def test_a_known_gpu_has_the_roof_of_its_maker(tmp_path: Path) -> None:
    run = toy(tmp_path, device="NVIDIA H100 80GB HBM3")
    answer = ask(load_view("kernels"), [run], Look())
    assert by_name(answer.rows)["matmul"]["roof_share"] == pytest.approx(100 / 3350)
    assert any(n == "roof: 3,350 GB/s, 989 TFLOP/s in fp16, stated by NVIDIA" for n in answer.notes)


def test_every_answer_says_how_the_roof_is_known_and_what_the_words_mean(tmp_path: Path) -> None:
    notes = ask(load_view("kernels"), [toy(tmp_path, roof=ROOF)], Look()).notes
    assert "roof: 100.0 GB/s, 1 TFLOP/s in fp16, measured 2026-01-02 03:04 UTC" in notes
    assert any(n.startswith("cache: faster than memory") for n in notes)
    assert any(n == "floor: too little work to fill a launch (2 µs minimum)" for n in notes)


def test_json_and_csv_have_the_columns_and_sort_by_them(tmp_path: Path) -> None:
    run = toy(tmp_path, roof=ROOF)
    actual = json.loads(format_report(load_view("kernels"), [run], Look(sort="roof_share"), "json"))
    assert [r["name"] for r in actual["rows"]] == ["matmul", "wide", "attention", "norm", "again", "untold"]
    again = actual["rows"][-2]  # twice as fast as the roof: the data was cached, and its share is no number
    assert again["bound"] == "cache" and again["roof_share"] is actual["rows"][-1]["roof_share"] is None
    rows = list(
        csv.DictReader(io.StringIO(format_report(load_view("kernels"), [run], Look(sort="gb_per_s"), "csv")))
    )
    assert [r["name"] for r in rows][:2] == ["again", "matmul"]
    assert float(rows[0]["gb_per_s"]) == 200.0


def test_eighty_columns_keep_the_share_and_the_word(tmp_path: Path) -> None:
    answer = ask(load_view("kernels"), [toy(tmp_path, roof=ROOF)], Look())
    head = ink.format_plain(
        ink.draw_table(answer.rows, ink.DrawSize(80, 24), load_view("kernels").columns, 0)
    ).splitlines()[0]
    assert [w for w in head.split() if w in ("name", "total", "share", "roof", "bound")] == [
        "name", "total", "share", "roof", "bound",
    ]  # fmt: skip


POINTS_ROOF = {
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
    table = {r["op"]: r for r in compute_roofline_points(run(roof=POINTS_ROOF), Look(), "op").to_dicts()}
    gemm, norm, copy = (table[op] for op in ("mlp.up", "norm", "copy"))
    assert (gemm["total_ns"], gemm["count"], gemm["known_share"]) == (4000, 3, 0.75)
    assert (gemm["intensity"], gemm["gflop_per_s"], gemm["gb_per_s"]) == (20, 500, 25)
    assert gemm["share"] == pytest.approx(4000 / 5500)
    assert gemm["roof_share"] == pytest.approx(0.5) and gemm["bound"] == "compute"  # 1.5 MFLOP: 1.5 of 3 µs
    assert (norm["intensity"], norm["gflop_per_s"], norm["gb_per_s"]) == (0.25, 10, 40)
    assert norm["roof_share"] == pytest.approx(0.4) and norm["bound"] == "memory"
    assert (copy["intensity"], copy["gflop_per_s"], copy["known_share"]) == (None, None, 0)


def answer() -> Answer:
    return ask(load_view("roofline"), [run(roof=POINTS_ROOF)], Look())


def test_the_answer_names_its_points_its_roof_and_what_is_not_known() -> None:
    actual = answer()
    assert actual.rows.select("mark", "op").rows() == [("a", "mlp.up"), ("b", "norm"), (None, "copy")]
    assert any("100.0 GB/s, 1 TFLOP/s in bf16, measured 2026-01-02" in note for note in actual.notes)
    # 1,000 ns of the products and the 500 of the copy, of 5,500
    assert "work is unknown for 27.3% of the time: mlp.up, copy" in actual.notes
    assert any("no roof is known" in note for note in ask(load_view("roofline"), [run()], Look()).notes)


@pytest.mark.parametrize("size", [DrawSize(80, 18), DrawSize(120, 34), DrawSize(80, 18, ascii=True)])
def test_the_picture_has_each_point_at_its_place(size: DrawSize) -> None:
    """Letters stand as far apart as their logarithms: a is right of b and above it, below the roof's bend."""
    lines = ink.format_plain(load_view("roofline").draw(answer(), Look(), size)).splitlines()  # type: ignore[misc]
    assert len(lines) <= size.height and max(map(len, lines)) <= size.width
    picture = [ln for ln in lines[1:] if any(c in ln for c in ("│┤" if not size.ascii else "|+"))]
    places = {
        c: (ln.index(c), y)
        for y, ln in enumerate(picture)
        for c in "ab"
        if c in ln.replace("FLOP per byte", "")
    }
    assert places["a"][0] > places["b"][0] and places["a"][1] < places["b"][1]
    assert "100.0 GB/s and 1.000 TFLOP/s" in lines[0]
    text = "\n".join(lines)
    assert "FLOP per byte" in text and "mlp.up" in text
    assert "\n".join(picture).isascii() or not size.ascii


def test_the_marks_lie_on_logarithmic_axes() -> None:
    """A tenth, one and ten lie evenly; each mark stands in its own column and line."""
    from tracetui.views.charts import ChartMark, draw_log_chart

    marks = [
        ChartMark(c, (10.0**n, 10.0 ** (2 * n)), "cat_matmul") for c, n in (("x", -1), ("y", 0), ("z", 1))
    ]
    lines = draw_log_chart([], marks, DrawSize(80, 24), title="t", x_label="u")
    at = {
        c: (text.index(c), i)
        for i, text in enumerate(ink.format_plain(lines).splitlines())
        for c in "xyz"
        if c in text
    }
    (x, down), (y, middle), (z, up) = at["x"], at["y"], at["z"]
    assert abs((z - y) - (y - x)) <= 1 and abs((down - middle) - (middle - up)) <= 1 and up < middle < down
    assert {s.style for ln in lines for s in ln if s.text in "xyz" and s.text} == {"cat_matmul"}
    assert draw_log_chart([], [], DrawSize(80, 24), title="t", x_label="u") == []
    assert draw_log_chart([], marks, DrawSize(20, 5), title="t", x_label="u") == []


def test_work_done_in_no_time_has_no_mark() -> None:
    """A clock that is too coarse says 0 ns: how fast that was is not known."""
    rows = [
        {"kind": "kernel", "name": n, "op": n, "dur": dur, "flops": 1e6, "bytes": 5e4, "lens": "gpu"}
        for n, dur in (("gemm", 2000), ("quick", 0))
    ]
    shown = load_view("roofline")
    answer = ask(shown, (made(rows, roof=POINTS_ROOF),), Look())
    assert dict(answer.rows.select("op", "mark").iter_rows()) == {"gemm": "a", "quick": None}
    assert "quick" in ink.format_plain(shown.draw(answer, Look(), DrawSize(100, 30)))  # type: ignore[misc]


def _formats_file(folder: Path) -> Path:
    """Products of 9.895 GFLOP in 20 µs on an H100, in fp8, bf16 and fp4."""
    work = {"kind": "kernel", "name": "k", "lens": "gpu", "dur": 20_000, "flops": 9.895e9, "bytes": 1.0}
    rows = [{**work, "op": f, "dtype": f, "name": f"product {f}"} for f in ("fp8", "bf16", "fp4")]
    head = {"kind": "run", "schema": 1, "name": "r", "meta": {"device": "NVIDIA H100 80GB HBM3"}}
    path = folder / "formats.jsonl"
    path.write_text("".join(json.dumps({"schema": 1, **row}) + "\n" for row in [head, *rows]))
    return path


@pytest.mark.parametrize("view", ["kernels", "roofline", "fix"])
def test_the_format_of_a_row_decides_its_roof(view: str, tmp_path: Path) -> None:
    (run,) = load(
        _formats_file(tmp_path),
        cache=False,
    )
    rows = ask(load_view(view), [run], Look(group="op" if view != "fix" else None)).rows
    shares = dict(rows.select("op", "roof_share").rows())
    assert shares["fp8"] == pytest.approx(0.25, rel=1e-3) and shares["bf16"] == pytest.approx(0.5, rel=1e-2)
    assert shares["fp4"] == pytest.approx(0.25, rel=1e-3), "an H100 has no units for fp4: as in fp8"


def test_a_group_of_two_formats_adds_their_times(tmp_path: Path) -> None:
    (run,) = load(_formats_file(tmp_path), cache=False)
    (row,) = compute_kernel_table(run, Look(group="lens")).to_dicts()
    assert row["roof_share"] == pytest.approx((0.25 + 0.25 + 0.50025) / 3, rel=1e-3)


def test_a_given_roof_takes_the_place_of_that_of_the_file(tmp_path: Path) -> None:
    roof = device_roofs.read_roof("bf16=1.979P")
    (run,) = load_all([_formats_file(tmp_path)], cache=False, roof=roof)
    answer = ask(load_view("kernels"), [run], Look())
    assert by_name(answer.rows)["product bf16"]["roof_share"] == pytest.approx(0.25)
    assert by_name(answer.rows)["product fp8"]["roof_share"] is None, "not given: unknown"
    assert any("given by --roof" in note for note in answer.notes)
    assert run.meta["roof"]["floor_ns"] == 2000, "the launch floor stays that of the device"


def test_two_devices_are_compared_by_roofs_of_one_kind() -> None:
    """One second of 335 GB: a tenth of an H100 as stated, a fifth of what was measured on one."""
    rows = [
        {"name": "gemm", "t": 0, "dur": 10**9, "bytes": 335e9, "flops": 1e9, "dtype": "bf16", "lens": "gpu"}
    ]
    measured = {"source": "measured", "read_bytes_per_s": 1675e9, "flop_per_s": {"bf16": 600e12}}
    h100 = made(rows, device="NVIDIA H100 80GB HBM3", roof=measured)
    mi300x, unknown = made(rows, device="AMD Instinct MI300X"), made(rows, device="GPU of tomorrow")
    look = Look(terms=Terms(value="roof_share"))

    def ask_shares(*runs: Run) -> tuple[list[float], str]:
        answer = ask(load_view("compare"), runs, look)
        values = [v for c, v in answer.rows.row(0, named=True).items() if c != "row"]
        return values, "\n".join(answer.notes)

    assert by_name(compute_kernel_table(h100, Look()))["gemm"]["roof_share"] == pytest.approx(0.2)
    values, notes = ask_shares(h100, mi300x)
    assert values == pytest.approx([335 / 3350, 335 / 5300]) and "stated by the makers" in notes
    values, notes = ask_shares(mi300x, made(rows, device="NVIDIA H100 80GB HBM3"))
    assert values == pytest.approx([335 / 5300, 335 / 3350]) and "kinds" not in notes, "of one kind already"
    values, notes = ask_shares(mi300x, made(rows, device="GPU of tomorrow", roof=measured))
    assert values[1] == pytest.approx(0.2) and "do not compare: stated by AMD, measured" in notes
    assert "kinds" not in ask_shares(mi300x, unknown)[1]
