"""The difference of two runs layer by layer: medians per token by hand, phases apart, steps by context."""

from statistics import median

import polars as pl
import pytest

from capture.import_log import Log
from capture.run import Run, build_run
from tracetui.compare.layer_diff import compare_layers
from tracetui.look import Look
from tracetui.views import load_view
from tracetui.views.ink import DrawSize, format_plain

STEPS = range(1, 21)


def decode(name: str, factor: float, tokens: int = 1, spike: int | None = None, first: int = 100) -> Run:
    """Layer l takes 1000·(l + 1) + step ns a token; in layer 1 mlp takes `factor` times that."""
    rows = []
    for step in STEPS:
        for layer in range(2):
            for op in ("attn", "mlp"):
                dur = (1000 * (layer + 1) + step) * tokens
                dur = int(dur * (factor if (layer, op) == (1, "mlp") else 1))
                rows.append(
                    {"kind": "kernel", "name": f"{name}.{op}", "op": op, "layer": layer, "step": step,
                     "phase": "decode", "dur": dur * (1000 if step == spike else 1)}
                )  # fmt: skip
        rows.append({"kind": "step", "name": "step", "step": step, "phase": "decode", "tokens": tokens,
                     "context": first + step})  # fmt: skip
    rows.append({"kind": "kernel", "name": "p", "op": "mlp", "layer": 0, "phase": "prefill", "dur": 10**9})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return build_run(name, {}, frame.with_columns(lens=pl.lit("gpu")), Log(source=name))


def test_a_cell_is_the_median_per_token_so_that_no_spike_moves_it() -> None:
    actual = compare_layers([decode("a", 1), decode("b", 1.5, tokens=2, spike=10)], Look(), "op")
    assert actual.phase == "decode"
    cells = {(r["layer"], r["op"]): r for r in actual.rows.to_dicts()}
    assert set(cells) == {(0, "attn"), (0, "mlp"), (1, "attn"), (1, "mlp")}
    before = median(2000 + s for s in STEPS)
    assert cells[1, "mlp"]["a_ns"] == round(before)
    assert cells[1, "mlp"]["change_pct"] == pytest.approx(50, abs=0.5)
    assert abs(cells[0, "attn"]["change_pct"]) < 0.3  # the spike counts as one step that is long
    assert cells[1, "mlp"]["delta_ns"] == cells[1, "mlp"]["b_ns"] - cells[1, "mlp"]["a_ns"]


def test_steps_stand_beside_each_other_by_context() -> None:
    actual = compare_layers([decode("a", 1), decode("b", 1, first=103)], Look(), "step")
    same = actual.rows.filter(pl.col("layer") == 0)
    assert same["step"].to_list() == list(range(4, 21))
    assert set(same["delta_ns"]) == {-3 * 2}  # two ops, each three steps younger at equal context


def test_the_cell_under_the_cursor_is_told_and_signs_need_no_colour() -> None:
    asked = load_view("shifts")
    answer = asked.answer([decode("a", 1), decode("b", 1.5)], Look())
    assert asked.draw is not None
    place = [
        r["op"] for r in answer.rows.filter(pl.col("layer") == 1).sort("b_ns", descending=True).to_dicts()
    ]
    text = format_plain(asked.draw(answer, Look(cursor=(1, place.index("mlp"))), DrawSize(80, 20)))
    assert "+50%" in text and "layer 1, op mlp: 2.010 µs → 3.016 µs  +1.006 µs  ▲ +50.0%" in text
    narrow = format_plain(asked.draw(answer, Look(), DrawSize(14, 20, ascii=True)))
    assert "++" in narrow and narrow.isascii()
