"""Equal work: real recordings with one known difference each, and small runs made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.import_log import Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests.tracetui.runs import MS, made
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.equal_work import find_work_differences
from tracetui.compare.words.decision import compute_decision, describe_decision
from tracetui.look import Look, Terms


def decoded(
    batch: int = 1,
    context: int = 100,
    ms: int = 4,
    steps: int = 12,
    shape: str | None = None,
    beams: int = 1,
    **meta: Any,
) -> Run:
    """A run of equal steps of one product; each token takes `ms` / `batch`."""
    rows = list[dict[str, Any]]()
    for step in range(steps):
        times = {"t": step * ms * MS, "dur": ms * MS + step % 3 * 1000, "step": step, "phase": "decode"}
        rows.append(
            {"kind": "kernel", "name": "mm", "op": "mlp.up", "category": "matmul", "lens": "wall"} | times
        )
        sizes = {"tokens": batch, "batch": batch * beams, "context": context + step}
        rows.append({"kind": "step", "name": "decode", "shape": shape} | times | sizes)
    return made(rows, **meta)


def differences(a: Run, b: Run, align: str = "context") -> list[str]:
    return list(map(str, find_work_differences(a, b, align)))


def trace(name: str) -> Run:
    (run,) = load(Path(__file__).parent / "traces" / f"{name}.json.gz", cache=False)
    return run


def test_twice_the_batch_is_never_faster() -> None:
    """A step of 4 ms becomes one of 7 ms: slower by step, faster by token, and judged by neither."""
    a, b = decoded(), decoded(batch=2, ms=7)
    compared = compare_runs((a, b), Look())
    lines = describe_decision(compared, Terms())
    assert lines[0] == "not the same work: batch 1 and 2"
    assert lines[1].startswith("not judged: decode step 4.001 ms → 3.501 ms per token")
    assert "4.001 ms → 7.001 ms per step (+75.0%)" in lines[1]
    assert not compared.comparability.ok and set(compared.rows["verdict"]) == {"~"}
    assert compute_decision(compared).as_dict()["differences"][0]["what"] == "batch"
    back = describe_decision(compare_runs((b, a), Look()), Terms())
    assert back[0] == "not the same work: batch 2 and 1" and back[1].startswith("not judged")


def test_beams_are_named_and_their_step_takes_what_it_takes() -> None:
    """Four candidates for one token: the step of 7 ms makes that token, not four."""
    lines = describe_decision(compare_runs((decoded(), decoded(beams=4, ms=7)), Look()), Terms())
    assert lines[0] == "not the same work: beams 1 and 4"
    assert "4.001 ms → 7.001 ms per token" in lines[1] and "per step" not in lines[1]
    assert differences(decoded(batch=2), decoded(batch=4)) == ["batch 2 and 4"]


def test_a_text_that_is_read_again_for_each_token_is_other_work() -> None:
    """Without a cache: the recorder writes what a step reads, if that is more than one token."""
    compared = compare_runs((decoded(kv_cache="DynamicCache"), decoded(shape="1x90", ms=8)), Look())
    first, second, *_ = describe_decision(compared, Terms())
    assert first == "not the same work: KV cache used and none, 90 tokens read per step"
    assert second.startswith("not judged: decode step 4.001 ms → 8.001 ms per token")
    assert differences(decoded(shape="1x90"), decoded(shape="1x90")) == []


def test_a_cache_is_only_used_where_that_is_written() -> None:
    """An older recording states neither the kind of cache nor the tokens that its prompt reads."""

    def prompted(shape: str | None) -> Run:
        prompt = {"kind": "step", "name": "prefill", "phase": "prefill", "step": 100, "t": MS, "dur": MS}
        return made([prompt | {"shape": shape}, *decoded().events.drop("phase").to_dicts()])

    reread = decoded(shape="1x90")
    assert differences(decoded(), reread) == differences(reread, decoded()) == []
    phased = [
        run.with_events(run.events.with_columns(phase=pl.coalesce("phase", pl.lit("decode"))))
        for run in (prompted("1x90"), prompted(None))
    ]
    assert differences(phased[0], reread) == ["KV cache used and none, 90 tokens read per step"]
    assert differences(phased[1], reread) == []


def test_equal_work_has_no_difference_and_its_verdict() -> None:
    compared = compare_runs((decoded(), decoded(ms=8)), Look())
    assert compared.works == () and compared.comparability.score == 1
    assert describe_decision(compared, Terms())[0].startswith("SLOWER: decode step")


def test_another_context_is_other_work_unless_steps_are_paired_by_number() -> None:
    a, b = decoded(), decoded(context=1000)
    assert differences(a, b) == ["context 106 and 1,006"]
    assert not compare_runs((a, b), Look()).comparability.ok
    assert compare_runs((a, b), Look(terms=Terms(align="step"))).comparability.ok
    assert differences(a, decoded(context=106)) == [], "half of the steps share their context"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"dtype": "float32"}, {"dtype": "bfloat16"}, "dtype fp32 and bf16"),
        ({"attention": "sdpa"}, {"attention": "eager"}, "attention sdpa and eager"),
        ({"kv_cache": "DynamicCache"}, {"kv_cache": "StaticCache"}, "kv_cache DynamicCache and StaticCache"),
        ({"compiled": False}, {"compiled": True}, "compiled no and yes"),
        ({"autograd": False}, {"autograd": True}, "autograd no and yes"),
        ({"train mode": False}, {"train mode": True}, "train mode no and yes"),
        ({"autocast": "none"}, {"autocast": "bfloat16"}, "autocast none and bf16"),
        (
            {"memory format": "channels first"},
            {"memory format": "channels last"},
            "memory format channels first and channels last",
        ),
        ({"donated inputs": 0}, {"donated inputs": 2}, "donated inputs 0 and 2"),
        ({"argv": ["x", "-n", "4", "--fast"]}, {"argv": ["x", "-n", "8"]}, "command -n 4 --fast and -n 8"),
    ],
)
def test_another_way_to_compute_the_same_is_named_and_judged(a: Any, b: Any, expected: str) -> None:
    runs = decoded(**a), decoded(ms=8, **b)
    assert differences(*runs) == [expected]
    lines = describe_decision(compare_runs(runs, Look()), Terms())
    assert lines[0].startswith("SLOWER") and f"  what differs: {expected}" in lines


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (
            ["Optimizer.step#AdamW.step", "aten::_fused_adamw_"],
            ["Optimizer.step#SGD.step", "aten::_foreach_add_"],
            "optimizer AdamW (fused) and SGD (foreach)",
        ),
        (
            ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"],
            ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"],
            "data loader no processes and processes",
        ),
    ],
)
def test_how_a_trace_was_trained_is_read_from_names(a: list[str], b: list[str], expected: str) -> None:
    mm = {"kind": "kernel", "name": "aten::mm", "dur": 5}
    runs = [
        made([mm, *({"name": n, "dur": 1, "kind": "span"} for n in names)], work="operators")
        for names in (a, b)
    ]
    assert differences(*runs) == [expected]
    assert differences(runs[0], runs[0]) == []


def test_options_of_the_profiler_are_named_as_they_cost_time() -> None:
    headers = (["record_shapes"], ["record_shapes", "with_stack"])
    runs = []
    for options in headers:
        table = pl.DataFrame({"key": options, "value": ["1"] * len(options)})
        rows = [{"kind": "kernel", "name": "aten::mm", "dur": 5}]
        runs.append(replace(made(rows, work="operators"), tables={"trace": table}))
    assert differences(*runs) == ["profiler options record_shapes and record_shapes + with_stack"]


def test_operators_of_another_number_format_beside_equal_products_are_named() -> None:
    """A norm in fp64; products in another format are told as the dtype of the run, and no more."""

    def run(norm: str, product: str = "fp32") -> Run:
        work = {"kind": "kernel", "dur": 5}
        rows = [
            {**work, "name": f"aten::{name}", "dtype": norm, "category": "norm"} for name in ("pow", "rsqrt")
        ]
        mm = {"name": "aten::mm", "dtype": product, "category": "matmul", "shape": "m=8 n=40 k=20"}
        return made([*rows, {**work, **mm}], work="operators")

    assert differences(run("fp32"), run("fp64")) == ["dtype of pow, rsqrt fp32 and fp64"]
    assert differences(run("fp32"), run("bf16", "bf16")) == ["dtype fp32 and bf16"]


def trained_in_parts(parts: int, batch: int, *, recomputes: bool = False) -> Run:
    """Eight steps of training that pass so many parts of a batch, of 64 tokens each, through a product."""
    rows: list[dict[str, Any]] = []
    for step in range(8):
        for _ in range(parts):
            work = {"kind": "kernel", "dur": MS, "step": step, "phase": "forward"}
            attention = {"name": "aten::_scaled_dot_product_flash_attention_for_cpu", "category": "attention"}
            rows += [
                {**work, "name": "aten::mm", "category": "matmul", "shape": f"m={64 * batch} n=40 k=20"},
                {**work, **attention, "shape": f"b={batch} q=64 k=64"},
                {**work, "name": "aten::mm_of_gradients", "phase": "backward"},
            ]
            rows += [{**work, "phase": "backward", "name": "aten::native_layer_norm"}] * recomputes
    return made(rows, work="operators")


def test_gradients_that_add_up_over_parts_of_a_batch_are_the_same_work() -> None:
    whole, parts = trained_in_parts(1, 8), trained_in_parts(4, 2)
    assert differences(whole, parts) == ["products per step 1 and 4", "batch of each pass 8 and 2"]
    assert compare_runs((whole, parts), Look()).comparability.ok
    half = compare_runs((whole, trained_in_parts(1, 4)), Look())
    assert [str(work) for work in half.works if work.is_work] == ["batch 8 and 4"]


def test_a_forward_that_runs_again_in_the_backward_is_named() -> None:
    runs = trained_in_parts(1, 8), trained_in_parts(1, 8, recomputes=True)
    assert differences(*runs) == ["forward computed again no and yes"]


def test_a_source_that_says_nothing_does_not_differ() -> None:
    assert differences(decoded(dtype="float32"), decoded()) == []


def test_another_model_is_other_work_a_quantised_one_is_not() -> None:
    a = decoded(layers=4, parameters=1000, quant="none")
    assert differences(a, decoded(layers=6, parameters=1500, quant="none")) == ["layers 4 and 6"]
    assert differences(a, decoded(layers=4, parameters=90, quant="int8")) == ["quant none and int8"]


def test_batch_is_read_from_the_shapes_of_a_trace() -> None:
    a, b = trace("sdpa"), trace("batch2")
    assert differences(a, b) == ["batch 1 and 2"]
    assert differences(a, trace("eager")) == ["attention flash and products + softmax"]
    assert describe_decision(compare_runs((a, b), Look()), Terms())[0] == "not the same work: batch 1 and 2"


def test_context_of_attention_as_two_products_is_read_from_those_of_scores() -> None:
    """Heads of 64: scores have n = context, the products with values k = context."""
    runs = [
        made([
            {"kind": kind, "name": "bmm", "category": "matmul", "op": "attn.core", "phase": "decode",
             "step": step, "t": step * MS, "dur": MS, "lens": "host", "shape": shape}
            for step in range(12)
            for kind, shape in (
                ("step", None), ("kernel", f"m=1 n={first + step} k=64 b=8"),
                ("kernel", f"m=1 n=64 k={first + step} b=8"),
            )
        ])
        for first in (49, 257, 49)
    ]  # fmt: skip
    assert differences(runs[0], runs[1]) == ["context 54 and 262"]
    assert differences(runs[0], runs[2]) == []


def compiled(
    layers: int,
    twice: int = 0,
    heads: int = 1,
    *,
    steps: int = 12,
    has_steps: bool = True,
    words: int = 2048,
    drafts: int = 1,
) -> Run:
    """A run of passes whose kernels have no layers: of three products each, and attention; and the head."""
    product = {"kind": "kernel", "name": "mm", "category": "matmul", "lens": "host"}
    attention = {**product, "name": "flash", "category": "attention", "shape": "b=1 h=8 q=1 k=99 d=64"}
    layer = [{**product, "shape": f"m=1 n={n} k=512"} for n in (512, 512, 1024)]
    of_pass = [*layer, attention] * layers + layer[:1] * twice
    of_pass += [{**product, "shape": f"m=1 n={words} k=512"}] * heads
    marks = [{"kind": "step", "name": "decode"}] * has_steps
    rows = [
        row
        | {"t": (step * 100 + at) * MS, "dur": MS}
        | ({"step": step, "phase": "decode"} if has_steps else {})
        for step in range(steps)
        for at, row in enumerate([*marks, *of_pass])
    ]
    for row in rows[-len(of_pass) :]:  # the last pass verifies drafts
        row["shape"] = row["shape"].replace("q=1", f"q={drafts}")
    return made(rows)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"words": 4096}, "weights of products 2048×512 and 4096×512"),
        ({"drafts": 4}, "tokens per step 1 and 1–4"),
    ],
)
def test_another_vocabulary_and_drafts_are_other_work_of_one_trace(options: Any, expected: str) -> None:
    a, b = compiled(4), compiled(4, **options)
    (difference,) = find_work_differences(a, b, "context")
    assert str(difference) == expected and difference.is_work
    assert differences(b, b) == []


def test_layers_of_a_draft_are_none_of_the_model() -> None:
    """A step with drafts has the layers of two models: of four, and of one that runs twice."""
    a, b = compiled(4), compiled(6, drafts=4)
    assert differences(a, compiled(6)) == ["layers 4 and 6"]
    assert differences(a, b) == ["tokens per step 1 and 1–4"]


def test_drafts_of_one_recording_are_other_work() -> None:
    a, b = decoded(), decoded()
    verified = b.events.with_columns(
        phase=pl.when(pl.col("step") > 8).then(pl.lit("verify")).otherwise(pl.col("phase").cast(pl.String))
    )
    assert differences(a, build_run("b", {}, verified, Log()))[0] == "speculation no and yes"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"layers": 6}, "layers 4 and 6"), ({"layers": 1}, "layers 4 and 1"), ({"layers": 4}, ""),
        ({"layers": 4, "twice": 4}, "products {} 13 and 17"),
        ({"layers": 4, "heads": 2}, "products {} 13 and 14"),
        ({"layers": 8, "heads": 2}, "products {} 13 and 26"),
    ],
    ids=["more layers", "one layer", "equal", "one product twice", "two heads", "two passes a step"],
)  # fmt: skip
@pytest.mark.parametrize("has_steps", [True, False], ids=["steps", "no steps"])
def test_layers_of_a_compiled_model_are_how_often_all_that_repeats_is_there(
    options: dict[str, int], expected: str, has_steps: bool
) -> None:
    named = expected.format("per step")
    if not has_steps and "{}" in expected:
        before, after = (12 * int(count) for count in expected.split()[2::2])
        named = f"products in all {before} and {after}"
    a, b = compiled(4, has_steps=has_steps), compiled(**options, has_steps=has_steps)
    assert differences(a, b) == ([named] if named else [])


@pytest.mark.parametrize(("options", "is_work"), [({"layers": 8, "heads": 2}, True), ({"twice": 4}, False)])
def test_everything_more_often_is_other_work_one_product_is_not(options: Any, is_work: bool) -> None:
    (difference,) = find_work_differences(compiled(4), compiled(**{"layers": 4} | options), "context")
    assert difference.is_work == is_work


def test_another_input_of_a_forward_is_other_work() -> None:
    """An encoder of 40 and of 64 positions: the recorder writes the sizes of its input."""
    runs = [decoded(shape=shape) for shape in ("1x40x64", "1x64x64", "1x40x64")]
    assert differences(runs[0], runs[1]) == ["input 1x40x64 and 1x64x64"]
    assert differences(runs[0], runs[2]) == []


def test_more_passes_without_steps_are_other_work_in_all() -> None:
    a, b = (compiled(4, steps=steps, has_steps=False) for steps in (12, 24))
    assert differences(a, b) == ["products in all 156 and 312"]
    assert describe_decision(compare_runs((a, b), Look()), Terms())[0].startswith("not the same work")


def test_rows_of_products_are_no_tokens_where_no_step_is() -> None:
    """As of a network of images, whose last product has a row for each."""
    runs = [
        made([
            {"kind": "kernel", "name": "addmm", "category": "matmul", "lens": "host", "t": at * MS, "dur": MS,
             "shape": f"m={rows} n=100 k=96"}
            for at in range(12)
        ])
        for rows in (8, 2)
    ]  # fmt: skip
    assert differences(*runs) == ["rows of products 8 and 2"]


def test_what_ran_instead_of_attention_is_named_in_its_order() -> None:
    compared = compare_runs((trace("sdpa"), trace("eager")), Look())
    named = compared.rows.drop_nulls("instead").filter(phase="decode")["instead"].to_list()
    assert named == ["flash attention → bmm + softmax + bmm"]
    lines = "\n".join(describe_decision(compared, Terms())[:5])
    assert named[0] in lines and "what differs: attention flash and products + softmax" in lines


def test_one_step_a_side_has_facts_and_no_p() -> None:
    compared = compare_runs((decoded(steps=1), decoded(steps=1, ms=40)), Look())
    first = describe_decision(compared, Terms())[0]
    assert first.startswith("as measured: decode step 4.000 ms → 40.00 ms per token") and "p 0" not in first
    assert compared.phases["p"].null_count() == compared.phases.height


def test_a_row_outside_of_the_steps_is_compared_by_its_total() -> None:
    a, b = decoded(), decoded()
    outside = {"kind": "kernel", "name": "load", "phase": "decode", "lens": "wall", "t": 200 * MS}
    runs = [made([*run.events.to_dicts(), outside | {"dur": ms * MS}]) for run, ms in ((a, 112), (b, 36))]
    row = compare_runs(runs, Look()).rows.filter(name="load").row(0, named=True)
    assert (row["median_a_ns"], row["median_b_ns"], row["per"], row["p"]) == (112e6, 36e6, "run", None)


def test_launches_that_are_cut_differently_are_not_compared_by_one() -> None:
    """Twice as many launches of half the time each are the same time, beside kernels that did not change."""

    def launched(count: int, us: int) -> Run:
        rows = [("split", us)] * count + [("one", 50)] * 40 + [("two", 60)] * 40
        return made(
            [
                {"kind": "kernel", "name": n, "t": i * MS, "dur": d * 1000 + i, "lens": "gpu"}
                for i, (n, d) in enumerate(rows)
            ]
        )

    rows = compare_runs((launched(40, 100), launched(80, 50)), Look()).rows
    row = rows.filter(name="split").row(0, named=True)
    assert (row["verdict"], row["per"], row["p"]) == ("~", "run", None)
    assert set(rows.filter(name="one")["per"]) == {"launch"}


def test_what_ran_instead_is_one_round_of_it_where_layers_are_unknown() -> None:
    """Three layers a step; the clone of the first step alone takes hardly any time."""

    def stepped(names: tuple[str, ...], first: str | None = None) -> Run:
        rows: list[dict[str, object]] = []
        for step in range(8):
            launches = [*([first] if first and step == 0 else []), *(names * 3)]
            rows += [
                {"name": name, "op": "attn.core", "step": step, "t": 10_000 * step + 10 * i, "dur": 9}
                for i, name in enumerate(launches)
            ]
        return made([{"lens": "wall", "kind": "kernel", **row} for row in rows])

    flash = "aten::_scaled_dot_product_flash_attention_for_cpu"
    sides = stepped((flash,)), stepped(("aten::bmm", "aten::_softmax", "aten::bmm"), "aten::clone")
    named = compare_runs(sides, Look()).rows["instead"].drop_nulls().to_list()
    assert named == ["flash attention → bmm + softmax + bmm"]
    masked = ("clone", "bmm", "div", "triu", "masked_fill", "_softmax", "bmm")  # by hand, in one layer
    compared = compare_runs((sides[0], stepped(tuple(f"aten::{name}" for name in masked))), Look())
    (named,) = compared.rows["instead"].drop_nulls()
    assert named == "flash attention → clone + bmm + div + softmax + bmm + 2 more"


def jitted(*functions: str, ms: int = 1, operations: int = 3, passes: int = 1, **meta: Any) -> Run:
    """Steps of operations of XLA, which are numbered within their program, called by these functions.

    All but the first are in a loop.
    """
    rows = list[dict[str, Any]]()
    for step in range(12):
        at = step * 100 * MS
        rows.append({"kind": "step", "name": "s", "t": at, "dur": 99 * MS, "step": step, "lens": "wall"})
        rows += [
            {"kind": "span", "name": f"PjitFunction({name})", "t": at, "dur": MS, "step": step}
            for name in functions
        ]
        rows += [
            {"kind": "kernel", "name": f"fusion.{n}", "t": at + n * 20 * MS, "dur": ms * MS, "step": step,
             "lens": "host"}
            for n in range(operations)
            for _ in range(passes if n else 1)
        ]  # fmt: skip
    return made(rows, producer="XLA profiler", **meta)


def test_operations_of_another_program_of_xla_are_others_whatever_their_number() -> None:
    compared = compare_runs((jitted("step"), jitted("add", "mul", ms=15, operations=4)), Look())
    assert list(map(str, compared.works)) == [
        "jitted functions step and add, mul", "XLA operations 3 and 4",
    ]  # fmt: skip
    assert {"slower", "faster"}.isdisjoint(compared.rows["verdict"])
    same = compare_runs((jitted("step"), jitted("step", ms=15)), Look())
    assert set(same.rows["verdict"]) == {"slower"} and not same.works


def test_more_passes_of_a_loop_of_xla_are_other_work() -> None:
    """As over more layers: its operations run more often, and the one outside does not."""
    (difference,) = find_work_differences(jitted("f", passes=4), jitted("f", passes=6), "context")
    assert str(difference) == "passes of a loop 4 and 6" and difference.is_work
    assert differences(jitted("f", passes=4), jitted("f", passes=4)) == []


def test_all_operations_of_xla_more_often_are_other_work_one_kind_is_not() -> None:
    """Layers written out: of each kind there are as many operations as layers."""

    def unrolled(*counts: int) -> Run:
        names = [
            f"{kind}.{n}"
            for kind, count in zip(("dot", "tanh", "add"), counts, strict=True)
            for n in range(count)
        ]
        rows = [
            {"kind": kind, "name": name, "t": (step * 100 + at) * MS, "dur": MS, "step": step, "lens": "host"}
            for step in range(12)
            for at, (kind, name) in enumerate([("step", "s"), *(("kernel", name) for name in names)])
        ]
        return made(rows, producer="JAX profiler")

    said = [
        differences(unrolled(8, 4, 1), unrolled(*counts)) for counts in ((12, 6, 1), (12, 4, 1), (12, 7, 1))
    ]
    assert said[0] == ["repeats of all operations 4 and 6", "XLA operations 13 and 19"]
    assert said[1:] == [["XLA operations 13 and 17"], ["XLA operations 13 and 20"]]


def test_other_sizes_of_the_inputs_of_a_program_are_other_work() -> None:
    weights = {"4x256x512": 2, "32x256": 1}
    a, b, c = (
        jitted("f", **{"program inputs": weights | more})
        for more in ({}, {"4x256x512": 1, "6x2": 1}, {"8": 1})
    )
    (difference,) = find_work_differences(a, b, "context")
    assert str(difference) == "inputs of the program 4x256x512 and 6x2" and difference.is_work
    assert differences(a, c) == [], "one more may be a constant of the other program"
