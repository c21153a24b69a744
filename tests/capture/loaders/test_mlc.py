"""WebLLM / MLC tables and console logs against the figures they print."""

from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders.mlc.guess_roles import UnlabelledKernel, guess_roles
from capture.run import Run
from tests.conftest import FIXTURES, document, seed

MLC = FIXTURES / "mlc"
TABLES = pytest.mark.parametrize("name", ["mlc/three_quants.md", "seed 0"])


def row(run: Run, name: str) -> dict[str, object]:
    return run.events.filter(pl.col("name") == name).to_dicts()[0]


@TABLES
def test_each_model_of_a_document_is_a_run(name: str) -> None:
    runs = load(document(name))
    assert [r.meta["quant"] for r in runs] == ["q0f16", "q4f16_1", "q4f32_1"]
    assert {(r.meta["model"], r.meta["device"]) for r in runs} == {("Llama 3.2 1B", "Apple M2")}
    assert row(runs[1], "batch_decode_paged_kv_kernel")["count"] == 126
    assert row(runs[0], "NT_matmul7_kernel_2")["max"] == 29_620_000


def test_three_models_of_one_document() -> None:
    runs = load(seed(0))
    assert [r.name for r in runs] == [f"Llama 3.2 1B {q}" for q in ("q0f16", "q4f16_1", "q4f32_1")]
    assert [r.events["dur"].sum() for r in runs] == [2_344_950_000, 2_257_640_000, 4_015_160_000]
    assert [r.events.height for r in runs] == [22, 22, 21]
    assert [r.events["count"].sum() for r in runs] == [1988, 1967, 1981]
    assert runs[1].meta["device"] == "Apple M2"
    assert runs[1].meta["model"] == "Llama 3.2 1B"
    assert row(runs[1], "batch_decode_paged_kv_kernel")["count"] == 126
    assert row(runs[0], "NT_matmul7_kernel_2")["max"] == 29_620_000


@TABLES
def test_every_printed_cell_is_kept(name: str) -> None:
    path = document(name)
    lines = path.read_text().splitlines()
    printed = [
        [c.strip() for c in line.strip().strip("|").split("|")] for line in lines if line.count("|") >= 6
    ]
    printed = [cells for cells in printed if cells[1].replace(".", "").isdigit()]
    kept = pl.concat(r.tables["statistics"] for r in load(path))
    assert kept.height == len(printed) > 50
    for cells, stated in zip(printed, kept.iter_rows(), strict=True):
        kernel, total, count, mean, peak, share, cumulative = stated
        assert [kernel, f"{total / 1e6:.2f}", str(count), f"{mean / 1e6:.2f}", f"{peak / 1e6:.2f}"] == cells[
            :5
        ]
        assert [f"{share:.2f}%", f"{cumulative:.2f}%"] == cells[5:]


@TABLES
def test_peaks_keep_their_own_order(name: str) -> None:
    peaks = load(document(name))[0].tables["peaks"]
    assert peaks["peak_ns"].to_list()[4:7] == [1_120_000, 8_410_000, 6_400_000]
    assert peaks.height == 10


@TABLES
def test_iterations_are_said_to_be_a_lower_bound(name: str) -> None:
    runs = load(document(name))
    assert {"lower_bound", "uneven_calls"} <= {n.id for n in runs[0].log.notices}
    assert runs[1].meta["lost_records"] == {"prefill": [61, 64], "decode": [121, 126]}


@TABLES
def test_roles_are_guessed_and_labelled(name: str) -> None:
    for run in load(document(name)):
        assert run.meta["guess"]
        by_role = run.events.filter(pl.col("name").cast(pl.String).str.contains("NT_matmul"))
        index = by_role["name"].cast(pl.String).str.extract(r"NT_matmul(\d+)").to_list()
        roles = dict(zip(index, by_role.select("op", "phase").iter_rows(), strict=True))
        assert roles["5"] == ("attn.qkv", "prefill") and roles["11"] == ("attn.out", "decode")
        assert roles["7"] == ("mlp.gate_up", "prefill") and roles["13"] == ("mlp.down", "decode")
        assert roles["14"] == ("lm_head", None)


@TABLES
def test_the_embedding_is_known_in_every_quantisation(name: str) -> None:
    for run in load(document(name)):
        takes = run.events.filter(pl.col("name").cast(pl.String).str.contains("take1"))
        assert takes["op"].to_list() == ["embed"]


def test_the_markdown_layout() -> None:
    (run,) = load(MLC / "table.md")
    assert run.name == "Toy 1B q0f16"
    assert run.events["dur"].to_list() == [1_000_100_000, 290_000]
    assert run.events["count"].to_list() == [1000, 29]
    assert (run.log.read, run.log.dropped) == (4, 1)
    assert "guess" not in run.meta


def test_the_plain_layout_has_no_title() -> None:
    (run,) = load(MLC / "table.txt")
    assert run.name == "kernels"
    assert run.events["dur"].to_list() == [60_050_000, 39_950_000]
    assert run.tables["peaks"].to_dicts() == [{"name": "NT_matmul7_kernel_2", "peak_ns": 2_000_000}]


def test_a_table_that_lost_rows_says_so(tmp_path: Path) -> None:
    cut = tmp_path / "cut.md"
    cut.write_text((MLC / "table.md").read_text().split("| index_kernel")[0].replace("99.98%", "60.00%"))
    (run,) = load(cut)
    assert run.meta["truncated"] is True
    assert run.log.lost_data


def test_console_records_in_every_variant() -> None:
    (run,) = load(MLC / "console.txt")
    assert run.events["name"].cast(pl.String).to_list() == [
        "NT_matmul7_kernel_2",
        "rms_norm1_kernel",
        "batch_decode_paged_kv_kernel",
        "fused_rope_kernel",
        "fused_rope_kernel",
    ]
    assert run.events["dur"].to_list() == [101_001, 50, 10_000, 123_000, 1_000_500]
    assert run.events["t"].to_list() == [0, 159_008, 259_007, None, None]
    assert (run.meta["model"], run.meta["quant"]) == ("SmolLM2-135M-Instruct", "q4f16_1")


def test_console_losses_are_counted() -> None:
    (run,) = load(MLC / "console.txt")
    counts = {n.id: n.count for n in run.log.notices}
    assert counts["several_entry_points"] == 1
    assert counts["bad_record"] == 1 and counts["torn_record"] == 1 and counts["bad_duration"] == 1
    assert (run.log.read, run.log.dropped) == (8, 3)


def test_a_matmul_of_a_number_that_none_has_gets_no_role() -> None:
    assert guess_roles([UnlabelledKernel(f"NT_matmul{'9' * 5000}_kernel", 1, 1)]) == {}
