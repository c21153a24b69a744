"""What the first screen says of a run, by hand and of real traces."""

import gzip
import json

import numpy as np
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES, shared
from tests.tracetui.analysis.time.test_idle_gaps import US, call, kernel
from tests.tracetui.runs import decode, launch_bound, made
from tracetui import units
from tracetui.analysis.growth import MOVING_LAWS
from tracetui.analysis.key_facts import find_key_facts, suggest_views
from tracetui.analysis.summary import build_run_facts
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import ask, load_view


def said(run: Run) -> dict[str, str]:
    return {verdict.name: verdict.text for verdict in find_key_facts(run)}


def step(kernels: list[tuple[float, ...]], *calls: tuple[str, float, float], **more: object) -> Run:
    rows = [kernel(*k, step=1, phase="decode", **more) for k in kernels]
    mark = {"kind": "step", "name": "step", "t": 0, "dur": 400 * US, "step": 1, "phase": "decode", "batch": 8}
    return made([*rows, *(call(*c) for c in calls), mark])


def test_a_host_that_launches_late_is_what_a_step_is_bound_by() -> None:
    late = [(0, 10, -5, 3), (97, 3, 90, 3)]  # 13 µs of work in 100, the host late for the rest
    assert said(step(late, layer=3)) == {
        "run": "decode, 8 sequences",
        "device": "gpu0 13.0% busy inside the step (100.0 µs)",
        "bound": "launch-bound (host late 87.0%)",
        "fit": "not fit to compare: one step only",
        "lever": "most to recover: host late 87.00 µs (87.0%); 13.0% not modelled",
    }


def test_a_host_that_a_profiler_slows_is_late_while_profiled() -> None:
    """Alone it may be in time; a host that is in time in spite of the profiler is so alone."""
    late, in_time = [(0, 10, -5, 3), (97, 3, 90, 3)], [(0, 100, -5, 3), (107, 18, 20, 3)]
    for kernels, text in ((late, "launch-bound while profiled (host late"), (in_time, "not launch-bound (")):
        run = step(kernels)
        profiled = Run(run.name, {**run.meta, "profiled": True}, run.events, run.log, run.tables)
        assert said(profiled)["bound"].startswith(text)


@pytest.mark.parametrize(
    ("start", "launch", "word"),
    [(115, 108, "partly launch-bound (host late 12.0%)"), (107, 20, "not launch-bound (host late 0.0%)")],
)
def test_a_little_lateness_binds_no_step(start: int, launch: int, word: str) -> None:
    """100 µs of work, then 15 µs for which the host is to blame, or 7 µs for which it is not."""
    run = step([(0, 100, -5, 3), (start, 125 - start, launch, 3)])
    assert said(run)["bound"] == word


def test_copies_that_nothing_hides_bind_a_device_and_the_wait_is_named() -> None:
    copy = kernel(10, 80, -4, 3, name="Memcpy HtoD", category="copy")
    wait = [call("aten::is_nonzero", 4, 92), call("aten::item", 5, 90), call("cudaStreamSynchronize", 6, 88)]
    run = made([kernel(0, 10, -5, 3), copy, kernel(90, 10, 1, 3), *wait])
    waits = "; the host waited 88.00 µs in aten::is_nonzero → aten::item"
    assert said(run)["bound"] == f"bound by copies (80.0%){waits}"
    assert said(run)["lever"].startswith("most to recover: memcpy (copy) 80.00 µs (80.0%)")


def test_without_a_device_only_the_steps_are_told() -> None:
    """A step of context c is 4 · (520 + 10c) µs of kernels and 500 µs beside, and c is 51 on average."""
    wall = 4 * (520 + 10 * 51) + 500
    assert said(decode()) == {
        "subject": "toy-1b f16 on paper",
        "run": "40 decode steps, 1 sequence, 4 layers",
        "pace": f"{2e6 / wall:.1f} tok/s, {500 / wall:.1%} outside of kernels",
        "fit": "fit to compare: 41 whole steps",
    }
    assert said(made([{"kind": "kernel", "name": "gemm", "dur": 5}])) == {"run": "5 ns in 1 kind of kernel"}


def test_a_bound_of_nothing_but_unknown_work_is_no_bound() -> None:
    """Copies take nearly all of the time and no roof is known: what is left of it is no bound."""
    rows = [
        {"name": "[CUDA memcpy HtoD]", "t": 0, "dur": 97_000, "category": "copy"},
        {"name": "gemm", "t": 97_000, "dur": 3000},
    ]
    assert "bound" not in said(made([{"kind": "kernel", "lens": "gpu", **row} for row in rows])).get(
        "pace", ""
    )


def test_of_work_and_roof_it_says_how_much_of_the_bound_is_reached() -> None:
    """2,000 bytes at 1 GB/s need 2 µs of a step of 5: so 500,000 tokens a second at best."""
    row = {"kind": "kernel", "lens": "wall", "phase": "decode", "name": "gemv", "dur": 4000, "bytes": 2e3}
    mark = {"kind": "step", "phase": "decode", "tokens": 1, "dur": 5000}
    rows = [{**each, "t": 5000 * n, "step": n} for n in range(3) for each in (row, mark)]
    roof = {"device": "toy", "source": "measured", "read_bytes_per_s": 1e9, "floor_ns": 10.0}
    run = made([{**r, "flops": 1.0} for r in rows], roof={**roof, "flop_per_s": {"fp32": 1e9}}, dtype="fp32")
    share, speed = 2000 / 5000, 1e9 / 5000
    assert (
        said(run)["pace"] == f"{speed:,.0f} tok/s, {share:.1%} of the bound ({speed / share:,.0f} tok/s), "
        "20.0% outside of kernels"
    )


def test_the_summary_begins_with_them_and_its_json_has_the_figures() -> None:
    run = step([(0, 10, -5, 3), (97, 3, 90, 3)])
    lines = format_report(load_view("summary"), [run], Look(), width=80).splitlines()
    assert lines[:5] == [
        "decode, 8 sequences",
        "gpu0 13.0% busy inside the step (100.0 µs), launch-bound (host late 87.0%)",
        "not fit to compare: one step only",
        "",
        "next report fix       most to recover: host late 87.00 µs (87.0%); 13.0% not",
    ]
    rows = json.loads(format_report(load_view("summary"), [run], Look(), "json"))["rows"]
    fields = {r["name"]: (r["total_ns"], r["share"]) for r in rows if r["part"] == "verdict"}
    assert fields["device"] == (13_000, pytest.approx(0.13))
    assert fields["bound"] == (87_000, pytest.approx(0.87)) == fields["lever"]


def test_of_a_served_model_the_first_screen_tells_what_matters() -> None:
    (run,) = load(shared("samples/serving/sglang_qwen3_8b_decode/execution.json.gz"))
    actual = said(run)
    assert (
        actual["run"] == "decode, 32 sequences of 1,025 tokens, 36 layers; one stray kernel 463.3 ms before"
    )
    assert actual["device"] == "gpu9 93.5% busy inside the step (10.45 ms)"
    assert actual["bound"].startswith("not launch-bound")


def test_of_an_encoder_in_eager_mode_it_says_launch_bound() -> None:
    (run,) = load(shared("samples/chrome_trace/bert-small-h100.json.gz"))
    assert said(run)["bound"] == "launch-bound while profiled (host late 92.1%)"


def test_of_two_devices_that_load_weights_it_says_bound_by_copies() -> None:
    (run,) = load(shared("samples/nsys/h100_2gpu_1s.sqlite"))
    actual = {v.name: v for v in find_key_facts(run)}
    assert actual["bound"].text.startswith(
        "bound by copies (97.0%); the host waited 428.5 ms in aten::is_nonzero"
    )
    assert actual["bound"].total_ns == pytest.approx(940.5e6, rel=1e-3)
    assert actual["device"].text == "gpu0 99.3% busy of 969.4 ms"


def test_the_picture_of_the_readme_tells_of_a_step_what_its_trace_holds() -> None:
    """Its kernels follow each other, so that busy is their sum; the first is 412 ms before the rest."""
    path = FIXTURES / "pictures" / "serving.json.gz"
    with gzip.open(path) as file:
        kernels = [e for e in json.load(file)["traceEvents"] if e["cat"] == "kernel"]
    stray, *rest = sorted(kernels, key=lambda e: e["ts"])
    begin, end = rest[0]["ts"], rest[-1]["ts"] + rest[-1]["dur"]
    busy, away = sum(e["dur"] for e in rest) / (end - begin), begin - stray["ts"] - stray["dur"]
    (run,) = load(path, cache=False)
    actual = said(run)
    assert (
        actual["run"]
        == f"decode, 32 sequences of 1,025 tokens, 36 layers; one stray kernel {away / 1000:.1f} ms before"
    )
    assert actual["device"] == f"gpu0 {busy:.1%} busy inside the step ({(end - begin) / 1000:.2f} ms)"
    rows = dict(build_run_facts(run).select("name", "text").iter_rows())
    assert rows["decode tokens/s"].startswith(f"{32e6 / (end - begin):,.0f} ")
    # 32,785 keys and values of 1,024 numbers in 16 bits, queries and outputs of 32 rows, at 3,350 GB/s
    least = (4 * 32_785 * 1024 + 4 * 32 * 4096) / 3350e3
    above = sum(e["dur"] - least for e in rest if "flash_fwd" in e["name"])
    assert actual["lever"].startswith(f"most to recover: attn.core (memory) {above / 1000:.3f} ms")


def looks(run: Run) -> dict[str, str]:
    return {suggestion.view: suggestion.text for suggestion in suggest_views(run)}


def test_what_grows_is_said_with_the_law_of_its_view() -> None:
    """40 steps of contexts 12 to 90: per token (100 + 10 · context) µs · 4 layers / 2 tokens."""
    assert looks(decode())["growth"] == (
        "attn.core grows by +20.00 ms per 1k tokens of context: 440.0 µs at 12, 2.000 ms at 90"
    )


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(6))
def test_no_growth_is_announced_that_its_own_view_calls_noisy(seed: int) -> None:
    """A machine that slows down in the last quarter raises the mean of constant work, but follows no law."""
    rng = np.random.default_rng(seed)
    run = decode()
    factors = np.where(np.arange(41) > 30, rng.choice([1.0, 1.1, 4.0], 41), rng.uniform(0.8, 1.2, 41))
    rows = run.events.drop("op", "category").to_dicts()
    rows = [
        {**row, "dur": int(1_000_000 * factors[row["step"]])} if row["kind"] == "kernel" else row
        for row in rows
    ]
    noisy = made(rows)
    laws = set(ask(load_view("growth"), [noisy], Look()).rows["law"])
    announced = "growth" in looks(noisy)
    assert announced <= bool(laws & set(MOVING_LAWS))
    assert not announced or laws != {"noisy"}


def test_one_slow_launch_makes_no_odd_layer_and_a_slow_layer_is_one() -> None:
    """Of 8 layers number 3 takes twice as long in every step, or 200 times as long in one step of 41."""
    sizes = {"bytes": 1e5, "flops": 1e5}
    for odd in (3, None):
        rows = decode(layers=8, odd=odd).events.drop("op", "category").to_dicts()
        rows = [{**row, **sizes} if row["kind"] == "kernel" else row for row in rows]
        if odd is None:
            slow = next(r for r in rows if r["name"] == "ffn_down" and r["layer"] == 3 and r["step"] == 7)
            slow["dur"] *= 200
        run = made(rows, roof={"read_bytes_per_s": 1e12, "source": "measured"})
        assert ("layers" in looks(run)) is (odd is not None)
        fix = " ".join(ask(load_view("fix"), [run], Look()).rows["evidence"])
        assert ("layer 3 loses" in fix) is (odd is not None)


def test_a_window_has_the_facts_of_its_own_steps() -> None:
    """Steps 1 to 10 are faster than all: their contexts are shorter."""
    run = made(decode().events.drop("op", "category").to_dicts(), decode_tokens_per_s=1.0)
    window = Look(window=(1, 10))
    facts = ask(load_view("summary"), [run], window).rows.filter(part="verdict")
    texts = dict(facts.select("name", "text").iter_rows())
    steps = ask(load_view("steps"), [run], window).rows
    speed = 1e9 * steps["tokens"].sum() / steps["wall_ns"].sum()
    assert texts["run"].startswith("10 decode steps")
    assert texts["pace"].startswith(f"{units.format_speed(speed)} tok/s")
    bars = ask(load_view("summary"), [run], window).rows.filter(part="phase")
    assert bars["name"].to_list() == ["decode"]


@pytest.mark.parametrize("steps", [4, 6])
def test_of_few_steps_or_a_level_op_no_growth_is_told(steps: int) -> None:
    assert "growth" not in looks(decode(steps=steps))
    level = [
        {**row, "dur": 400_000} if row["kind"] == "kernel" else row
        for row in decode().events.drop("op", "category").to_dicts()
    ]
    assert "growth" not in looks(made(level))


def test_the_largest_kernel_is_told_with_its_share() -> None:
    rows = [{"name": "gemm", "dur": 750}, {"name": "norm", "dur": 250}]
    assert suggest_views(made([{"kind": "kernel", **row} for row in rows])) == [
        ("kernels", "gemm takes 75.0% of the time", (("name", "gemm"),))
    ]


def test_a_device_that_idles_is_told_and_one_that_works_is_not() -> None:
    idle, busy = ([kernel(0, 10, -5, 3), kernel(start, 10, start - 5, 3)] for start in (30, 11))
    assert looks(made(idle))["timeline"] == "when gpu0 idles: 50.0% of the time"
    assert "timeline" not in looks(made(busy))


def test_at_most_three_are_told_and_a_report_names_their_commands() -> None:
    run = launch_bound()
    actual = suggest_views(run)
    assert 1 <= len(actual) <= 3 and actual[0].view == "fix"
    lines = format_report(load_view("summary"), [decode()], Look(), width=80).splitlines()
    assert [line[5:20].rstrip() for line in lines if line[5:].startswith("report ")] == [
        "report growth",
        "report steps",
        "report kernels",
    ]


def test_what_cannot_be_told_stands_with_what_to_record() -> None:
    run = made([{"kind": "kernel", "name": "gemm", "dur": 5}], producer="PyTorch profiler")
    rows = ask(load_view("summary"), [run], Look()).rows
    assert ("growth", "needs step") in rows.filter(part="unknown").select("name", "text").rows()
    assert "a schedule and prof.step() in the loop" in " ".join(rows.filter(part="record")["text"])
    *_, missing = format_report(load_view("summary"), [run], Look(), width=200).partition("not recorded: ")
    assert missing.startswith("growth, layers, steps") and "tracetui doctor FILE" in missing.splitlines()[0]


def test_steps_with_much_time_in_no_kernel_are_suggested() -> None:
    """Kernels of a processor take 600 of 1,000 ns of each step."""
    rows = [
        {"kind": kind, "name": kind, "t": 1000 * step, "dur": dur, "step": step, "lens": "wall"}
        for step in range(4)
        for kind, dur in (("kernel", 600), ("step", 1000))
    ]
    suggested = {s.view: s.text for s in suggest_views(made(rows))}
    assert suggested["steps"] == "40.0% of the time is outside of kernels"


def test_time_of_two_devices_is_said_to_be_added_up() -> None:
    (run,) = load(shared("samples/nsys/h100_2gpu_1s.sqlite"))
    assert said(run)["run"] == "1.926 s in 45 kinds of kernel, added up over gpu0 and gpu1"
    assert run.events.filter(kind="kernel", lens="gpu")["name"].n_unique() == 45


def test_operations_without_a_phase_are_in_their_step() -> None:
    """A loop whose `forward` is marked and whose sampling is not: its step is no forward step."""
    rows = []
    for step in range(4):
        rows.append(
            {"kind": "step", "name": "iteration", "lens": "host", "t": 100 * step, "dur": 100, "step": step}
        )
        kernel = {"kind": "kernel", "lens": "host", "step": step}
        rows.append({**kernel, "name": "mm", "t": 100 * step, "dur": 60, "phase": "forward"})
        rows.append({**kernel, "name": "multinomial", "t": 100 * step + 60, "dur": 30, "phase": None})
    facts = said(made(rows))
    assert facts["run"] == "4 steps" and facts["pace"] == "10.0% outside of operations"


def test_time_outside_of_profiled_operations_is_said_to_be_profiled() -> None:
    """The profiler's own work lies between the operations."""
    rows = [{"kind": "step", "name": "step", "lens": "wall", "t": 0, "dur": 100, "step": 0}]
    rows += [{"kind": "kernel", "name": "mm", "lens": "host", "t": 0, "dur": 40, "step": 0}]
    assert said(made(rows))["pace"] == "60.0% outside of operations"
    assert said(made(rows, profiled=True))["pace"] == "60.0% outside of operations while profiled"
    (run,) = load(FIXTURES / "chrome/onnxruntime.json")
    assert "gap 161.0 µs (61.1%) while profiled" in said(run)["lever"]
