"""Doppler's log against the figures it prints."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.capture.loaders._common import same
from tests.conftest import FIXTURES, document, seed

DOPPLER = FIXTURES / "doppler"
MS = 1_000_000


LOGS = ("doppler/decode.log", "seed 2")


@pytest.fixture(scope="module", params=LOGS)
def log(request: pytest.FixtureRequest) -> Path:
    """A log with one prefill and many blocks of decoding; the last block has three tokens."""
    return document(request.param)


@pytest.fixture(scope="module")
def run(log: Path) -> Run:
    (only,) = load(log)
    return only


@pytest.fixture(scope="module")
def large() -> Run:
    (only,) = load(seed(2))
    return only


def printed_totals(log: Path) -> list[int]:
    """The total of every block in ns, by a pattern alone."""
    return [round(float(ms) * 100) * 10_000 for ms in re.findall(r"^TOTAL +([\d.]+)", log.read_text(), re.M)]


def kernels(run: Run, **equal: Any) -> pl.DataFrame:
    return run.events.filter(pl.col(k) == v for k, v in {"kind": "kernel", **equal}.items())


def steps(run: Run, phase: str) -> pl.DataFrame:
    return run.events.filter((pl.col("kind") == "step") & (pl.col("phase") == phase)).sort("step")


def test_blocks_and_totals_of_any_log(log: Path, run: Run) -> None:
    reports, totals = run.tables["reports"], printed_totals(log)
    assert reports["total_ns"].to_list() == totals
    assert run.meta["decode_gpu_ns"] == sum(totals[1:])
    assert run.events.filter(pl.col("kind") == "span")["dur"].sum() == sum(totals)


def test_blocks_and_totals(large: Run) -> None:
    run, reports = large, large.tables["reports"]
    assert reports.height == 65
    assert reports["rows"].to_list() == [189] + [140] * 64
    assert reports["total_ns"].to_list()[0] == 114.27 * MS
    assert sum(reports["total_ns"].to_list()[1:]) == 37_092_200_000
    assert run.meta["decode_gpu_ns"] == 37_092_200_000
    assert run.events.filter(pl.col("kind") == "span")["dur"].sum() == 37_206_470_000


def test_every_row_is_kept(log: Path, run: Run) -> None:
    row = r"^(?!TOTAL|Kernel)([a-z]\S*) +(\d+\.\d\d) +\d+\.\d$"
    printed = re.findall(row, log.read_text(), re.MULTILINE)
    assert len(printed) == sum(run.tables["reports"]["rows"]) > 100
    kept = kernels(run).select(pl.col("name").cast(pl.String), "dur").rows()
    assert kept == [(name, int(ms.replace(".", "")) * 10_000) for name, ms in printed]
    assert run.log.dropped == 0


def test_steps_carry_tokens_and_context(run: Run) -> None:
    decode = steps(run, "decode")
    blocks = run.tables["reports"].height - 1
    assert decode["step"].to_list() == list(range(1, blocks + 1))
    assert decode["tokens"].to_list() == [4] * (blocks - 1) + [3]
    assert decode["tokens"].sum() == run.meta["tokens"] - 1
    assert decode["context"].to_list() == (9 + decode["tokens"].cum_sum()).to_list()
    prefill = steps(run, "prefill").select("step", "tokens", "context", "dur").row(0)
    assert prefill == (0, 9, 9, round(run.meta["prefill_ms"] * MS))
    assert any("context" in g for g in run.meta["guess"])


def test_step_times_fill_the_stated_decode_time(run: Run) -> None:
    decode = steps(run, "decode")
    assert decode["dur"].sum() == round(run.meta["decode_ms"] * MS)
    assert (decode["dur"] > pl.Series(run.tables["reports"]["total_ns"].to_list()[1:])).all()
    assert (decode["t"] + decode["dur"]).to_list()[:-1] == decode["t"].to_list()[1:]
    assert 0.9 < run.meta["decode_gpu_ns"] / decode["dur"].sum() < 0.92
    assert any("wall" in g for g in run.meta["guess"])


def test_attention_grows(run: Run) -> None:
    attention = kernels(run, name="attention", phase="decode").sort("step")
    per_token = (attention["dur"] / steps(run, "decode")["tokens"] / MS).to_list()
    assert per_token[0] == pytest.approx(20.77 / 4)
    assert per_token[-1] == pytest.approx(344.47 / 3)
    assert attention["layer"].is_null().all()
    assert attention["op"].unique().to_list() == ["attn.core"]


@pytest.mark.parametrize(
    ("label", "op", "layer"),
    [
        ("matmul:q_proj:L1", "attn.q", 1),
        ("matmul:o_proj:L0", "attn.out", 0),
        ("matmul:ffn_gate:L1", "mlp.gate", 1),
        ("matmul_rmsnorm_fused:L1.ffn_down", "mlp.down", 1),
        ("matmul:lm_head", "lm_head", None),
        ("fused_ffn", "mlp", None),
        ("rmsnorm", "norm", None),
        ("rope", "attn.rope", None),
        ("sample_phase2", "sample", None),
        ("gather", "embed", None),
    ],
)
def test_labels_tell_op_and_layer(run: Run, label: str, op: str, layer: int | None) -> None:
    assert kernels(run, name=label).select("op", "layer").unique().row(0) == (op, layer)


def test_what_a_log_says_of_its_run(log: Path, run: Run) -> None:
    output = {
        "model": "gemma-3-1b-it", "device": "apple metal-3", "dtype": "f16", "hidden": 1152, "heads": 4,
        "head_dim": 256, "kernel_path": "gemma3-f16-f16a", "prompt_tokens": 9, "profiled": True,
    }  # fmt: skip
    assert {k: run.meta.get(k) for k in output} == output
    assert run.meta["layers"] == (2 if "decode" in log.name else 26)
    assert run.tables["selections"]["op"].to_list()[:2] == ["matmul", "attention"]


def test_what_the_log_says_of_the_run(large: Run) -> None:
    run = large
    output = {
        "model": "gemma-3-1b-it", "device": "apple metal-3", "dtype": "f16", "layers": 26, "hidden": 1152,
        "heads": 4, "head_dim": 256, "vocabulary": 262144, "kernel_path": "gemma3-f16-f16a", "ttft_ms": 308.1,
        "prefill_ms": 191.8, "decode_ms": 40471.5, "load_ms": 3343.5, "decode_tokens_per_s": 6.33,
        "prompt_tokens": 9, "tokens": 256, "prompt": "Summarize this input in one sentence.",
        "profiled": True,
    }  # fmt: skip
    assert {k: run.meta.get(k) for k in output} == output
    assert run.name == "gemma-3-1b-it"
    assert run.tables["selections"]["op"].to_list()[:2] == ["matmul", "attention"]
    marks = run.events.filter(pl.col("kind") == "mark")["path"].cast(pl.String).value_counts().rows()
    assert dict(marks)["metric"] == 5


def test_memory_lines(run: Run) -> None:
    memory = run.events.filter(pl.col("kind") == "memory")
    sizes = {(str(n), str(p)): b for n, p, b in memory.select("name", "path", "bytes").rows()}
    assert sizes[("gpu", "complete")] == pytest.approx(2.04 * 2**30)
    assert sizes[("heap", "start")] == pytest.approx(2.05 * 2**30)


def test_a_suite_is_split_into_its_runs() -> None:
    first, second = load(DOPPLER / "browser.log")
    assert [first.name, second.name] == ["toy-1", "toy-1 #2"]
    assert steps(first, "decode")["tokens"].to_list() == [4, 1, 2]
    assert steps(second, "decode")["tokens"].to_list() == [3]
    assert "context" not in first.events.columns
    assert steps(second, "decode")["context"].to_list() == [6 + 3]
    assert (first.meta["ttft_ms"], second.meta["ttft_ms"]) == (12.0, 11.5)
    assert second.meta["device"] == first.meta["device"] == "toy gpu-1"
    assert first.meta["layers_only"] is True and "layers_only" not in second.meta
    assert steps(first, "decode")["dur"].to_list() == [8 * MS, 10 * MS, 10 * MS]


def test_a_prefill_after_decoding_begins_another_run(tmp_path: Path) -> None:
    """Also where the first run printed no metrics at its end."""
    text = (DOPPLER / "decode.log").read_text()
    begin, end = text.index("[browser:warning] [1273.0ms]"), text.rindex("\nTOTAL") + 1
    path = tmp_path / "twice.log"
    path.write_text(text[:end] + "TOTAL 100.00 100.0\n" + text[begin:])
    assert [(steps(run, "prefill").height, steps(run, "decode").height > 1) for run in load(path)] == [
        (1, True),
        (1, True),
    ]


def test_a_report_of_nothing_has_shares_that_are_no_number() -> None:
    first, _ = load(DOPPLER / "browser.log")
    assert kernels(first, step=3)["dur"].to_list() == [0, 0]


def test_the_browser_prefix_is_optional() -> None:
    assert same(load(DOPPLER / "browser.log"), load(DOPPLER / "node.log"))


def test_missing_reports_are_said_and_nothing_is_derived_across_them(log: Path, tmp_path: Path) -> None:
    text = log.read_text()
    third, fourth = [m.start() for m in re.finditer(r"^.*\[Profile\] Batch decode", text, re.MULTILINE)][2:4]
    skipped = tmp_path / "skipped.log"
    skipped.write_text(text[:third] + text[fourth:])
    (run,) = load(skipped)
    assert "steps_missing" in {n.id for n in run.log.notices}
    assert steps(run, "decode").height == text.count("Batch decode") - 1
    assert "context" in run.events.columns and steps(run, "decode")["context"].is_null().all()
    assert steps(run, "decode")["dur"].is_null().all()


def test_a_cut_log_says_so(log: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.log"
    whole = log.read_bytes()
    last_row = whole.rindex(b"rope", 0, whole.rindex(b"Batch decode"))
    cut.write_bytes(whole[:last_row])
    (run,) = load(cut)
    assert run.meta["truncated"] is True
    assert {"report_cut", "no_end"} <= {n.id for n in run.log.notices}
    assert steps(run, "decode")["dur"].is_null().sum() == 1


def test_rows_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    broken = tmp_path / "broken.log"
    text = (DOPPLER / "node.log").read_text()
    broken.write_text(text.replace(" 3.00    37.5", "  n/a    37.5"))
    first, _ = load(broken)
    assert first.log.dropped == 1
    assert {"bad_row", "rows_missing"} <= {n.id for n in first.log.notices}


def test_other_lines_inside_a_report_cost_nothing(tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.log"
    text = (DOPPLER / "browser.log").read_text()
    mixed.write_text(
        text.replace("matmul:lm_head", "[browser:log] [111.0ms][Loader] late news\nmatmul:lm_head")
    )
    for a, b in zip(load(mixed), load(DOPPLER / "browser.log"), strict=True):
        assert a.events.equals(b.events) and a.log.dropped == b.log.dropped == 0


def test_a_log_that_a_windows_shell_saved(tmp_path: Path) -> None:
    wide = tmp_path / "wide.log"
    wide.write_bytes((DOPPLER / "browser.log").read_text().replace("\n", "\r\n").encode("utf-16"))
    assert same(load(wide), load(DOPPLER / "browser.log"))
