"""Layers: sums, times per token, and the odd one out."""

import polars as pl
import pytest

from capture.load_runs import load
from tests.tracetui.runs import decode, made
from tracetui import units
from tracetui.analysis.layers import compute_layer_table
from tracetui.look import Look
from tracetui.samples import find_sample
from tracetui.views import ask, find_focus, ink, load_view
from tracetui.views.ink import DrawSize


def test_the_odd_layer_is_found() -> None:
    table = compute_layer_table(decode(steps=5, layers=8, odd=3), Look(), "op")
    odd = table.filter("odd").select("layer", pl.col("op").cast(pl.String)).rows()
    assert odd == [(3, "mlp.down")]
    (cell,) = table.filter((pl.col("layer") == 3) & (pl.col("op") == "mlp.down")).to_dicts()
    assert cell["total_ns"] == 6 * 800_000 and cell["count"] == 6
    assert cell["per_token_ns"] == 6 * 800_000 // (10 + 5 * 2)


def test_the_odd_layer_is_found_where_names_state_the_layer() -> None:
    rows = decode(steps=5, layers=8, odd=3).events.drop("category").to_dicts()
    named = [{**row, "name": f"{row['name']}:L{row['layer']}"} for row in rows]
    table = compute_layer_table(made(named), Look(), "op")
    assert table.filter("odd").select("layer", pl.col("op").cast(pl.String)).rows() == [(3, "mlp.down")]


def test_layers_by_step_divide_by_the_tokens_of_the_step() -> None:
    table = compute_layer_table(decode(steps=2, layers=4), Look(filter="ffn"), "step")
    assert table.filter(pl.col("layer") == 1)["per_token_ns"].to_list() == [40_000, 200_000, 200_000]


@pytest.mark.parametrize("filter_text", ["layer:3", "layer:>2", "op:mlp.down"])
def test_a_filter_hides_no_odd_layer(filter_text: str) -> None:
    """The median is that of all layers, also of those that are not shown."""
    run, view = decode(steps=5, layers=8, odd=3), load_view("layers")
    whole = ask(view, [run], Look()).rows
    part = ask(view, [run], Look(filter=filter_text)).rows
    assert part.filter("odd")["layer"].to_list() == [3]
    assert part.rows() == whole.join(part, on=["layer", "op"], how="semi").rows()


def test_a_layer_that_is_slow_in_one_step_is_not_odd() -> None:
    rows = decode(steps=20, layers=8).events.drop("op", "category").to_dicts()
    slow = next(r for r in rows if r["name"] == "ffn_down" and r["layer"] == 3 and r["step"] == 7)
    slow["dur"] *= 100
    table = compute_layer_table(made(rows), Look(), "op")
    assert not table["odd"].any()


def test_each_kind_of_layer_has_its_own_median() -> None:
    """Every third layer attends to the whole context with a kernel of its own; one of those is slow."""
    rows = decode(steps=5, layers=12).events.drop("op", "category").to_dicts()
    for row in rows:
        if row["name"] == "attention" and row["layer"] % 3 == 2:
            row |= {"name": "attention_global", "dur": row["dur"] * (12 if row["layer"] == 8 else 4)}
    table = compute_layer_table(made(rows), Look(), "op")
    assert table.filter("odd")["layer"].to_list() == [8]
    core = table.filter(op="attn.core").sort("layer")
    medians = dict(core.select("layer", "median_ns").rows())
    assert (medians[2], medians[1]) == tuple(core.filter(pl.col("layer").is_in([1, 2]))["total_ns"])[::-1]


def test_a_layer_that_lacks_a_kernel_has_the_median_of_the_kind_most_like_it() -> None:
    """Even layers have an attention of their own; layer 0 is one of them, but for a fused product."""
    rows = decode(steps=5, layers=14).events.drop("op", "category").to_dicts()
    for row in rows:
        if row["name"] == "attention" and row["layer"] % 2 == 0:
            row |= {"name": "attention_window", "dur": row["dur"] // 4}
    rows = [row for row in rows if (row["name"], row["layer"]) != ("ffn_down", 0)]
    assert len(rows) < decode(steps=5, layers=14).events.height
    core = compute_layer_table(made(rows), Look(), "op").filter(op="attn.core").sort("layer")
    medians = core["median_ns"].to_list()
    assert medians[0] == medians[2] == core["total_ns"][0] < medians[1]
    assert not core["odd"].any()


def test_a_filter_by_layer_leaves_the_percents_of_its_cells() -> None:
    """The odd layer's down takes twice the median: in the cell, in the line below, and alone as among all."""
    view, run = load_view("layers"), decode(layers=8, odd=3)
    assert view.draw is not None
    drawn = []
    for text in ("", "layer:3"):
        look = Look(filter=text)
        lines = view.draw(ask(view, [run], look), look, DrawSize(80, 30))
        drawn.append(next(ink.format_plain([line]) for line in lines if line[0].text.strip() == "3"))
    assert sorted(drawn[0].split()) == sorted(drawn[1].split()) and "+100%!" in drawn[0]


@pytest.mark.parametrize("separator", [".", " / "])
def test_layers_of_two_stacks_are_rows_of_their_own(separator: str) -> None:
    kernel = {"kind": "kernel", "name": "gemm", "lens": "gpu", "op": "mlp.up"}
    path = separator.join(("model", "{}", "layers", "{}", "fc1"))
    rows = [
        {**kernel, "t": 100 * n, "dur": dur + n, "path": path.format(stack, n), "layer": n}
        for stack, dur in (("encoder", 5), ("decoder", 50))
        for n in range(3)
    ]
    view, look = load_view("layers"), Look()
    answer = ask(view, [made(rows)], look)
    assert answer.rows.select("stack", "layer", "total_ns").rows() == [
        ("encoder", 0, 5), ("encoder", 1, 6), ("encoder", 2, 7),
        ("decoder", 0, 50), ("decoder", 1, 51), ("decoder", 2, 52),
    ]  # fmt: skip
    assert answer.rows.unique(answer.key).height == 6
    assert view.draw is not None
    assert any("the picture has the layers of the decoder" in note for note in answer.notes)
    assert "50 ns" in ink.format_plain(view.draw(answer, look, DrawSize(80, 20))[-1:])
    assert "stack" not in ask(view, [made(rows[3:])], Look()).rows.columns
    for cursor in ((1, 0), (1, -1)):
        focus = find_focus(view, answer, Look(cursor=cursor))
        entered = ask(load_view("kernels"), [made(rows)], Look(focus=focus))
        assert entered.rows["total_ns"].to_list() == [51], "the layer of the stack that is drawn"
    one = ask(view, [made(rows)], Look(filter="path:encoder"))
    assert one.rows["total_ns"].to_list() == [5, 6, 7]
    assert not any("picture" in note for note in one.notes)


def test_a_stack_that_ran_before_the_first_step_is_shown() -> None:
    """Other rows of no step are of a pass that was recorded in part."""
    kernel = {"kind": "kernel", "name": "gemm", "lens": "wall", "op": "mlp.up", "dur": 5}
    rows = [
        {**kernel, "t": t, "path": f"{stack} / block / {n} / fc1", "layer": n, "step": step}
        for t, (stack, n, step) in enumerate(
            [
                ("encoder", 0, None),
                ("encoder", 1, None),
                ("decoder", 0, None),
                ("decoder", 0, 1),
                ("decoder", 1, 1),
            ]
        )
    ]
    steps = [{"kind": "step", "name": "decode", "t": 3, "dur": 9, "step": 1, "phase": "decode", "tokens": 1}]
    table = ask(load_view("layers"), [made([*rows, *steps])], Look()).rows
    assert table.select("stack", "layer", "count", "per_token_ns").rows() == [
        ("encoder", 0, 1, 5), ("encoder", 1, 1, 5), ("decoder", 0, 1, 5), ("decoder", 1, 1, 5),
    ]  # fmt: skip


def test_a_layer_unlike_all_is_compared_with_those_most_alike() -> None:
    """Two kinds in turn, and a first layer that lacks one small kernel: its attention is as in its kind."""
    rows, t = [], 0
    for n in range(12):
        core = ("window", 10) if n % 2 == 0 else ("full", 40)
        for name, dur in (("qkv", 20), core, *((("copy", 5),) if n else ())):
            op = "attn.core" if name in ("window", "full") else name
            row = {"kind": "kernel", "name": name, "lens": "gpu", "op": op, "layer": n, "dur": dur, "t": t}
            rows.append(row)
            t += dur
    table = compute_layer_table(made(rows), Look(), "op").filter(pl.col("op") == "attn.core")
    assert table["median_ns"].to_list() == [10, 40] * 6 and not table["odd"].any()


def test_a_number_as_filter_selects_a_layer_or_a_step() -> None:
    run = decode(steps=5, layers=8)
    assert set(ask(load_view("layers"), [run], Look(filter="3")).rows["layer"]) == {3}
    assert ask(load_view("steps"), [run], Look(filter="4")).rows["step"].to_list() == [4]


def test_the_line_below_the_layers_leads_to_the_whole_layer_and_says_where_it_is_cut() -> None:
    view, (run,) = load_view("layers"), load(find_sample("decode"))
    answer = ask(view, [run], Look())
    assert view.draw is not None
    below = {
        width: ink.format_plain(view.draw(answer, Look(), DrawSize(width, 24))).splitlines()[-1].rstrip()
        for width in (79, 120, 160)
    }
    assert below[79].endswith("the median  ← layer") and below[120].endswith("…  ← layer")
    assert below[160].endswith("GFLOP/s  ← layer")


@pytest.mark.parametrize("filter_text", ["", "op:mlp.down", "layer:3"])
def test_the_total_of_a_layer_is_that_of_all_its_ops_whatever_a_filter_hides(filter_text: str) -> None:
    run, view, look = decode(steps=5, layers=8, odd=3), load_view("layers"), Look(filter=filter_text)
    kernels = run.events.filter(kind="kernel", layer=3)
    tokens = 10 + 5 * 2
    assert view.draw is not None
    lines = [ink.format_plain([line]) for line in view.draw(ask(view, [run], look), look, DrawSize(80, 30))]
    words = next(line.split() for line in lines if line.split()[:1] == ["3"])
    assert " ".join(words[1:3]) == units.format_duration(round(kernels["dur"].sum() / tokens))
    assert "total" in lines[0].split()
