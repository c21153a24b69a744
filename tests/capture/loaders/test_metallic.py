"""metallic's event log: lenses, nesting, steps, appended runs; the C scanner against the line reader."""

import json
from itertools import islice
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.loaders._scan import load_scanner
from capture.loaders.metallic import event_log
from capture.loaders.metallic.op_names import collapse_repeated_scopes, parse_op_name
from capture.run import Run
from capture.source import Source
from tests.bench._metallic_maker import Maker
from tests.capture.loaders._common import same
from tests.capture.loaders._metallic import analyzed
from tracetui import report_formats
from tracetui.look import Look
from tracetui.views import load_view

ODD_NAME = "Unscoped/a, b/metallic::kernels::odd::OddOp"


def recorded(path: Path, count: int = 6000, *, blocks: int = 3, prompt: int = 5) -> Path:
    """Thousands of lines with every variant that the format knows, and one that it does not."""
    maker = Maker(blocks, prompt)
    lines = list(islice(maker.lines(), count))
    extras = [
        maker.event("ResourceCacheSummary", cache="sdpa", hits=90, misses=10, hit_rate=90.0, size=4),
        maker.event("ResourceCacheSummary", cache="sdpa", hits=190, misses=10, hit_rate=95.0, size=4),
        maker.event("CacheEviction", cache="sdpa", strategy="lru", count=1, reason="full", size_after=3),
        maker.event("FoundryThing", a=1),
        maker.op("Generation Loop/block_1/dep_wait", 17),
        maker.op("Unscoped/cb_wait", 400),
        maker.op("tensor_staging_prepare", 541),
        maker.op(ODD_NAME, 33),
        maker.internal("generation_loop", "logits_sync", 12),
        maker.op(
            "x/matmul/mlx (Q)", 77, "Custom", ',"data":{"op":"matmul","backend":"mlx","m":"1","loader":"q8"}'
        ),
    ]
    for place, extra in enumerate(extras):
        lines.insert(700 + 97 * place, extra)
    path.write_text("".join(lines))
    return path


def one(path: Path) -> Run:
    (run,) = load(path, cache=False)
    return run


def test_sections_equal_the_analyzer(tmp_path: Path) -> None:
    path = recorded(tmp_path / "prof.jsonl")
    printed = report_formats.format_report(load_view("sections"), [one(path)], Look()).splitlines()
    assert [line.strip() for line in printed[1:] if line] == analyzed(path)


def test_total_of_each_lens(tmp_path: Path) -> None:
    path = recorded(tmp_path / "prof.jsonl")
    expected = {"wall": 0, "wait": 0, "gpu": 0}
    for line in path.read_text().splitlines():
        event = json.loads(line)["event"]
        if event["type"] == "GpuOpCompleted":
            name = event["data"]["op_name"]
            lens = "gpu" if "/cb_gpu" in name else "wait" if name.endswith("_wait") else "wall"
            expected[lens] += event["data"]["duration_us"] * 1000
    kernels = one(path).events.filter((pl.col("kind") == "kernel") & (pl.col("lens") != "host"))
    totals = kernels.group_by(pl.col("lens").cast(pl.String)).agg(pl.col("dur").sum())
    assert dict(totals.rows()) == expected


def test_totals_nest_and_leaves_do_not(tmp_path: Path) -> None:
    host = one(recorded(tmp_path / "prof.jsonl")).events.filter(pl.col("lens") == "host")
    spans = set(host.filter(pl.col("kind") == "span")["name"].cast(pl.String))
    leaves = set(host.filter(pl.col("kind") == "kernel")["name"].cast(pl.String))
    assert {"iteration_total", "forward_step_total", "block_0_total", "next_token_ready_latency"} <= spans
    assert leaves == {
        "forward_cpu_block_0", "forward_cpu_block_1", "forward_cpu_block_2", "next_token_wait",
        "token_decode", "logits_sync",
    }  # fmt: skip


def test_steps_are_the_iterations(tmp_path: Path) -> None:
    path = recorded(tmp_path / "prof.jsonl")
    events = [json.loads(line)["event"]["data"] for line in path.read_text().splitlines()]
    iterations = [d["duration_us"] for d in events if d.get("internal_kernel_name") == "iteration_total"]
    run = one(path)
    steps = run.events.filter(pl.col("kind") == "step").sort("step")
    assert steps["step"].to_list() == list(range(len(iterations) + 1))
    assert steps["dur"].to_list()[1:] == [us * 1000 for us in iterations]
    assert steps["tokens"].to_list() == [5, *[1] * len(iterations)]
    assert steps["context"].to_list() == [5, *range(6, 6 + len(iterations))]
    prefill = run.events.filter((pl.col("phase") == "prefill") & (pl.col("kind") == "kernel"))
    assert set(prefill["step"]) == {0}
    assert run.meta["profiled"] is True


def test_what_is_not_timed(tmp_path: Path) -> None:
    run = one(recorded(tmp_path / "prof.jsonl"))
    memory = run.events.filter(pl.col("kind") == "memory")
    weights = memory.filter(pl.col("path").cast(pl.String).str.starts_with("ModelWeights"))
    assert weights["bytes"].sum() == 272_269_312 + 3 * (20_000_000 + 9_000_000)
    assert run.tables["caches"].row(0, named=True)["hits"] == 190
    assert run.tables["backends"]["count"].sum() == run.tables["cache_accesses"]["count"].sum()
    last = run.tables["tensor_preparation"].row(0, named=True)
    assert last["cache_hits"] == 9 * last["cache_misses"]
    (unknown,) = (n for n in run.log.notices if n.id == "unknown_event")
    assert (unknown.count, "FoundryThing" in unknown.message) == (1, True)
    assert dict(run.tables["event_types"].rows())["CacheEviction"] == 1


def test_names_by_their_grammar() -> None:
    scope = "Generation Loop/block_4/attn_rearrange_block_4_op"
    kernel = "metallic::kernels::kv_rearrange::KvRearrangeOp"
    assert collapse_repeated_scopes(f"{scope}/{scope}/{kernel}") == f"{scope}/{kernel}"
    meaning = parse_op_name(f"{scope}/{kernel}")
    assert (meaning.name, meaning.phase, meaning.layer, meaning.lens) == (kernel, "decode", 4, "wall")
    wait = parse_op_name("Prompt Processing/block_11/mlp_swiglu_block_11_op/cb_wait")
    assert (wait.name, wait.phase, wait.layer, wait.lens) == ("mlp_swiglu/cb_wait", "prefill", 11, "wait")
    assert parse_op_name("Generation Loop/cb_gpu").lens == "gpu"
    head = parse_op_name("Generation Loop/generation_step_output/X::MatmulGemvOp/matmul/gemv (C)")
    assert (head.op, head.category) == ("lm_head", "matmul")


def test_shapes_carry_work_and_backend(tmp_path: Path) -> None:
    events = one(recorded(tmp_path / "prof.jsonl")).events
    row = events.filter(pl.col("op") == "lm_head").row(0, named=True)
    assert row["shape"] == "op=matmul | batch=1 | m=1 | n=151936 | k=896 | tA=0 | tB=1 | backend=gemv"
    assert row["flops"] == 2 * 151936 * 896
    odd = events.filter(pl.col("name") == "mlx (Q)").row(0, named=True)
    assert odd["shape"] == "op=matmul | batch=? | m=1 | n=? | k=? | tA=? | tB=? | loader=q8 | backend=mlx"
    assert odd["flops"] is None


def test_a_batch_of_products_counts_each(tmp_path: Path) -> None:
    sides = '"batch":"3","m":"2","n":"5","k":"7","tA":"0","tB":"0"'
    maker, data = Maker(1, 1), f',"data":{{"op":"matmul","backend":"mlx",{sides}}}'
    path = tmp_path / "prof.jsonl"
    path.write_text("".join([*islice(maker.lines(), 60), maker.op("x/matmul/mlx (Q)", 77, "Custom", data)]))
    assert one(path).events.filter(pl.col("name") == "mlx (Q)")["flops"].to_list() == [2.0 * 3 * 2 * 5 * 7]


@pytest.mark.corpus
@pytest.mark.parametrize("form", ["spaces", "keys", "prefix", "noise", "crlf"])
def test_any_layout_gives_the_same(form: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "prof.jsonl", 1500)
    lines = path.read_text().splitlines()
    other = {
        "spaces": [json.dumps(json.loads(line)) for line in lines],
        "keys": [_turned(line) for line in lines],
        "prefix": [f"METRIC: {line}" for line in lines],
        "noise": [x for line in lines for x in (line, "tokens: 12", "")],
        "crlf": [line + "\r" for line in lines],
    }[form]
    copy = tmp_path / "other"
    copy.write_text("\n".join(other) + "\n", newline="")
    assert same(load(path, cache=False), load(copy, cache=False))


def _turned(line: str) -> str:
    """The line with the keys of its objects the other way round."""

    def turn(value: object) -> object:
        return dict(reversed([(k, turn(v)) for k, v in value.items()])) if isinstance(value, dict) else value

    return json.dumps(turn(json.loads(line)))


def test_appended_runs_are_split(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    first, second = (list(islice(Maker(2, 3, seed=s).lines(), 900)) for s in (1, 2))
    path.write_text("".join((*first, *second)))
    left, right = load(path, cache=False)
    alone = tmp_path / "alone.jsonl"
    alone.write_text("".join(second))
    assert right.events.equals(one(alone).events)
    assert (left.name, right.name) == ("metallic #1", "metallic #2")


def test_a_pause_and_a_clock_that_goes_back_start_a_run(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    maker = Maker(1, 1)
    lines = [maker.op("tensor_staging_prepare", 5)]
    maker.us += 90_000_000
    lines.append(maker.op("tensor_staging_prepare", 6))
    maker.us -= 5_000_000
    lines.append(maker.op("tensor_staging_prepare", 7))
    path.write_text("".join(lines))
    assert [r.events["dur"].to_list() for r in load(path, cache=False)] == [[5000], [6000], [7000]]


def test_the_last_line_may_be_cut(tmp_path: Path) -> None:
    path = recorded(tmp_path / "prof.jsonl", 300)
    whole = path.read_text()
    path.write_text(whole[:-9])
    run = one(path)
    assert run.log.dropped == 1
    assert [n.id for n in run.log.notices if n.severity == "data_loss"] == ["cut_line"]


def test_bad_lines_cost_themselves_only(tmp_path: Path) -> None:
    path = recorded(tmp_path / "prof.jsonl", 400)
    good = one(path)
    lines = path.read_text().splitlines()
    bad = lines[5].replace('"duration_us":', '"duration_us":-')
    half, words = lines[6][:40], lines[7].replace('"duration_us":', '"duration_us":"x","y":')
    path.write_text("\n".join([*lines[:200], bad, half, words, *lines[200:]]) + "\n")
    run = one(path)
    assert (run.log.read, run.log.dropped) == (len(lines) + 3, 3)
    assert run.events["dur"].sum() == good.events["dur"].sum()


DAMAGES = (
    ('"duration_us":', '"duration_us":-'),
    ('"duration_us":', '"duration_us":0'),
    ('"duration_us":', '"duration_us":+'),
    ('"duration_us":', '"duration_us":12345678901234567890'),
    ('"duration_us":', '"duration_us":1e'),
    ('"duration_us":', '"duration_us":7,"duration_us":'),
    ('"duration_us":', '"data":{"duration_us":'),
    ('"duration_us":', '"us":'),
    ('op_name":"', 'op_name":"Zµ\\u00e9\\"'),
    ("}}}", "}}}}"),
    ("}}}", "}}"),
    ("}}}", "}}},1"),
    ("2025", "+025"),
    ("30.", "30.+"),
    ("30.", "30.000000"),
    ('Z"', '"'),
    ('"span_id":null', '"span_id":"Z","x":7'),
    ('"event"', '"evemt"'),
    ('{"timestamp"', '\ufeff{"timestamp"'),
    ('{"timestamp"', 'METRIC: {"timestamp"'),
    ('{"timestamp"', 'METRICS: {"timestamp"'),
)


def test_damaged_lines_are_read_the_same_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(tmp_path / "prof.jsonl", 2000)
    lines = path.read_text().splitlines()
    for place, (old, new) in enumerate(DAMAGES):
        for line in range(100 + 40 * place, 104 + 40 * place):
            lines[line] = lines[line].replace(old, new)
    path.write_text("\n".join(lines))
    assert load_scanner() is None or event_log._scan_log(Source.from_path(path)) is not None
    fast = one(path)
    monkeypatch.setattr(event_log, "_scan_log", lambda source: None)
    slow = one(path)
    assert fast.events.equals(slow.events)
    assert (fast.log.read, fast.log.dropped) == (slow.log.read, slow.log.dropped)
    assert fast.log.dropped > 20


def test_nothing_readable_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    path.write_text(Maker().event("GpuOpCompleted", op_name="x", duration_us="soon"))
    with pytest.raises(UnreadableError):
        load(path, cache=False)
