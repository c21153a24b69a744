"""The rows of MLC's report on Llama 3.2 1B, each beside its counterpart in a recording of our own engine.

A small model of the same make is recorded, so that its rows have the names and the phases of the large one;
the sizes are those of the large one's plan.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from engines.models.catalogue import find_preset
from engines.plan import StepLoad, plan_device_ops
from tests import conftest
from tests.engines import folders, tiny
from tests.engines.test_engine import main, of_kind, ops_of, recorded

Rows = dict[str, tuple[int, float]]  # name → times it ran, milliseconds each
NONE: Final = {
    "merge_state_inplace": "keys of the prompt and of the cache go through one softmax: nothing is merged",
    "index": "the last position is taken by `final_norm`, which reads no other",
}
# what MLC's name holds → phase and rows of ours that do the same work
PAIRS: Final = {
    r"NT_matmul5_": ("prefill", ("dequant+qkv_proj",)),
    r"NT_matmul6_": ("prefill", ("dequant+o_proj",)),
    r"NT_matmul7_": ("prefill", ("dequant+ffn_gate_up",)),
    r"NT_matmul8_": ("prefill", ("dequant+ffn_down",)),
    r"NT_matmul10_": ("decode", ("dequant+qkv_proj",)),
    r"NT_matmul11_": ("decode", ("dequant+o_proj",)),
    r"NT_matmul12_": ("decode", ("dequant+ffn_gate_up",)),
    r"NT_matmul13_": ("decode", ("dequant+ffn_down",)),
    r"NT_matmul14_": ("decode", ("dequant+lm_head",)),
    r"batch_prefill_(ragged|paged)_kv": ("prefill", ("attention",)),  # new keys, and those of the cache
    r"batch_decode_paged_kv": ("decode", ("attention",)),
    r"fuse_add_norm_prefill": ("prefill", ("attn_residual", "ffn_norm", "ffn_residual", "attn_norm")),
    r"fused_split1_silu1_multiply1": ("prefill", ("ffn_act",)),
    r"fused_split2_silu2_multiply2": ("decode", ("ffn_act",)),
    r"fused_rope": ("decode", ("rope",)),
    r"kv_cache_transpose_append": ("decode", ("kv_append",)),
    r"rms_norm1": ("prefill", ("attn_norm", "final_norm")),
    r"rms_norm2": ("decode", ("attn_norm", "final_norm")),
    r"dequantize_take1": ("decode", ("dequant+embed",)),
}
RESIDUAL: Final = re.compile(r"fused_(NT_matmul\d+)_add")  # q4f32_1 adds to the stream within the product
SIZES: Final = {"vocab_size": 304, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "eos_token_id": None}  # fmt: skip


def seed_rows(quant: str) -> Rows:
    """The statistics of one section of the report."""
    text = conftest.seed(0).read_text()
    (section,) = (part for part in text.split("## Profiling Analysis: ")[1:] if f" {quant} " in part[:40])
    table = section.split("### Kernel Execution Statistics")[1]
    cells = [[c.strip() for c in line.split("|")] for line in table.splitlines() if "_kernel" in line]
    return {c[0]: (int(c[2]), float(c[3])) for c in cells}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(tiny.SPECS["llama"], vocab=304, hidden=64, ffn=96, layers=2)
    return folders.write(tmp_path_factory.mktemp("m"), {**folders.OLD_LLAMA, **SIZES}, tiny.weights(spec))


def live_rows(model: Path, quant: str, out: Path) -> dict[str, set[str]]:
    """The names of the rows that the engine records, by phase."""
    code = main(["--model", "llama", "--weights", str(model), "--out", str(out), "--device", "cpu",
                 "--steps", "2", "--threads", "1", "--quant", quant])  # fmt: skip
    assert code == 0
    lines = recorded(out)
    ops = ops_of(lines)
    phases: dict[str, set[str]] = {"prefill": set(), "decode": set()}
    for line in of_kind(lines, "columns"):
        phases[line["phase"]] |= {ops[number]["name"] for number in line["op"]}
    return phases


def counterpart(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Where our engine does the work of a kernel of MLC; None where it has no such row, as NONE says why."""
    found = [pair for pattern, pair in PAIRS.items() if re.search(pattern, f"{name}_")]
    if RESIDUAL.search(name):
        ((phase, rows),) = found
        added = "ffn_residual" if rows[0].endswith("down") else "attn_residual"
        return phase, (*rows, added)
    assert len(found) <= 1, f"{name} has one counterpart"
    return found[0] if found else None


@pytest.mark.parametrize(("quant", "count"), [("q4f16_1", 22), ("q4f32_1", 21)])
def test_every_row_has_its_counterpart_or_a_reason(
    quant: str, count: int, model: Path, tmp_path: Path
) -> None:
    rows = seed_rows(quant)
    assert len(rows) == count
    live = live_rows(model, quant, tmp_path / "a.jsonl")
    without = set()
    for name in rows:
        pair = counterpart(name)
        if pair is None:
            without.add(name.removesuffix("_kernel"))
        else:
            phase, ours = pair
            assert set(ours) <= live[phase], f"{name}: {ours} of {phase}"
    assert without == set(NONE), "each with its reason, and no more"


@pytest.mark.parametrize("quant", ["q4f16_1", "q4f32_1"])
def test_the_products_are_paired_by_their_size(quant: str) -> None:
    """A token streams each matrix once: the larger our counterpart, the longer MLC's kernel took."""
    spec = find_preset("llama-3.2-1b")
    planned = plan_device_ops(spec, StepLoad(fusion="dequant", weight_bytes=0.5625, stream_bytes=0), ())
    size = {row.name: row.bytes[0] for row in planned if row.category == "matmul"}
    took = {}
    for name, (_, each) in seed_rows(quant).items():
        pair = counterpart(name)
        if pair and pair[0] == "decode" and pair[1][0] in size:
            took[pair[1][0]] = each
    assert len(took) == 5
    assert sorted(took, key=lambda row: took[row]) == sorted(took, key=lambda row: size[row])


def test_a_token_does_each_as_often_as_the_model_has_layers() -> None:
    """The report holds 61 to 64 launches for 4 prefills of 16 layers, and 121 to 126 for 8 tokens."""
    layers = find_preset("llama-3.2-1b").layers
    for name, (times, _) in seed_rows("q4f16_1").items():
        pair = counterpart(name)
        if pair and pair[1][0].startswith("dequant+") and "lm_head" not in pair[1][0] and "take" not in name:
            expected = layers * (4 if pair[0] == "prefill" else 8)
            assert 0.94 * expected <= times <= expected, name
