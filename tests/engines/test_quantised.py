"""A decoder over packed weights: against a plain one, in its plan, through the door."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from capture.errors import EngineError
from engines import processor
from engines.arguments import QUANTS
from engines.decoder import estimate_decoder_bytes
from engines.models.catalogue import find_preset
from engines.models.spec import count_parameters
from engines.plan import StepLoad, plan_device_ops
from engines.startup_choices import check_decoder_fits
from engines.weights import low_bit
from engines.weights.low_bit import QUANT_FORMATS, QuantFormat
from engines.weights.matrix_storage import BF16_PREPACKED, FP16
from engines.weights.quantised_storage import QuantisedStorage
from engines.weights.weight_sources import WeightTally
from tests.engines import folders, plain, tiny
from tests.engines.test_decoder import relative
from tests.engines.test_engine import main, of_kind, ops_of, recorded
from tracetui.verbs import _engine_options

CPU = torch.device("cpu")
SPECS = {name: replace(spec, vocab=304, hidden=64, head_dim=16, ffn=96, layers=3,
                       windowed_layers=spec.windowed_layers[4:])
         for name, spec in tiny.SPECS.items()}  # fmt: skip
# of a whole decoder in torch: scales and rows in bf16; fp32 throughout; 8 bits for whatever is multiplied
TOLERANCE = {"q4f16_1": 0.05, "q4f32_1": 2e-5, "q8_0": 0.1}


def meant(table: dict[str, torch.Tensor], form: QuantFormat) -> dict[str, torch.Tensor]:
    """Every matrix packed and unpacked, the rest as it is."""
    return {k: low_bit.pack(v, form).unpack() if v.dim() == 2 else v for k, v in table.items()}


@pytest.fixture
def in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nothing is compiled."""
    monkeypatch.setattr(processor, "list_kinds", tuple)


SLOW = pytest.mark.slow


@pytest.mark.corpus
@pytest.mark.parametrize("compiled", [True, pytest.param(False, marks=SLOW)], ids=["compiled", "torch"])
@pytest.mark.parametrize("fused", [True, pytest.param(False, marks=SLOW)], ids=["fused", "granular"])
@pytest.mark.parametrize("form", QUANT_FORMATS.values(), ids=QUANT_FORMATS)
@pytest.mark.parametrize("family", SPECS)
def test_equals_the_plain_decoder_over_what_is_stored(
    family: str, form: QuantFormat, fused: bool, compiled: bool, request: pytest.FixtureRequest
) -> None:
    if not compiled:
        request.getfixturevalue("in_torch")
    spec, table = SPECS[family], tiny.weights(SPECS[family])
    ids = torch.randint(0, spec.vocab, (2, 20), generator=torch.Generator().manual_seed(1))
    model = tiny.decoder(spec, table, packing=QuantisedStorage(form, CPU), batch=2, fused=fused)
    actual = tiny.logits(model, ids, prefill=12)
    wanted = torch.stack([plain.forward(spec, meant(table, form), row.tolist())[11:] for row in ids])
    assert relative(actual, wanted) < TOLERANCE[form.name]


@pytest.mark.parametrize(("name", "bits"), [("q4f16_1", 4.5), ("q4f32_1", 5.0), ("q8_0", 8.5)])
def test_the_plan_counts_the_bits_of_the_format(name: str, bits: float) -> None:
    spec = find_preset("llama-3.2-1b")
    way = QuantisedStorage(QUANT_FORMATS[name], CPU)
    rows = plan_device_ops(
        spec, StepLoad(weight_bytes=way.weight_bytes, stream_bytes=0, fusion=way.fusion), ()
    )
    norms = 33 * 2048
    assert sum(r.bytes[0] for r in rows if r.category == "matmul") == bits / 8 * (
        count_parameters(spec) - norms
    )


def test_names_carry_the_fusion_and_the_method() -> None:
    rows = plan_device_ops(SPECS["gemma3"], StepLoad(fusion="dequant"), ())
    assert [r.name for r in rows if r.layer in (None, 0)] == [
        "dequant+embed", "attn_norm", "dequant+qkv_proj", "qk_norm", "rope", "kv_append", "attention",
        "dequant+o_proj", "post_attn_norm", "attn_residual", "ffn_norm", "dequant+ffn_gate_up", "ffn_act",
        "dequant+ffn_down", "post_ffn_norm", "ffn_residual", "final_norm", "dequant+lm_head",
    ]  # fmt: skip
    model = tiny.decoder(
        SPECS["gemma3"], tiny.weights(SPECS["gemma3"]), packing=QuantisedStorage(QUANT_FORMATS["q8_0"], CPU)
    )
    assert [op.__name__ for op in model.ops] == [row.method for row in model.plan_step()]


def test_what_is_packed_is_told_as_it_goes() -> None:
    """The share of all weights after each matrix, the table first; norms are not packed."""
    spec, shares = SPECS["llama"], []
    way = QuantisedStorage(QUANT_FORMATS["q4f16_1"], CPU)
    way.report_packed = WeightTally(spec, shares.append).add
    tiny.decoder(spec, tiny.weights(spec), packing=way)
    assert shares[0] == pytest.approx(304 * 64 / count_parameters(spec))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1 - 7 * 64 / count_parameters(spec))


def test_memory_is_known_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bits: every parameter, and a prepacked head beside its table; 4 bits: 4.5 as they are stored, the
    table being the head, or 5 as torch keeps them, beside the table.
    """
    spec = find_preset("gemma-3-1b")
    ends = 262144 * 1152

    def needed(way: Any) -> int:
        return estimate_decoder_bytes(spec, way, batch=1, capacity=1) - 2 * 26 * 256 * 4 - (256 << 20)

    assert needed(FP16) == 2 * count_parameters(spec) + 2 * ends
    assert needed(BF16_PREPACKED) == 2 * count_parameters(spec) + 4 * ends
    if processor.list_kinds():
        stored = int(0.5625 * count_parameters(spec) + (2 + 0.5625) * ends)
        assert needed(QuantisedStorage(QUANT_FORMATS["q4f16_1"], CPU)) == stored
    monkeypatch.setattr(processor, "list_kinds", tuple)
    four = int(0.625 * count_parameters(spec) + 0.5625 * ends + (2 + 0.5625 + 0.625) * ends)
    assert needed(QuantisedStorage(QUANT_FORMATS["q4f16_1"], CPU)) == four


@pytest.mark.usefixtures("in_torch")
def test_too_little_memory_names_tighter_ways() -> None:
    spec = find_preset("gemma-3-1b")
    with pytest.raises(EngineError, match=r"these fit: --quant q4f16_1 \(2\.\d GB\), qwen3-0\.6b"):
        check_decoder_fits(spec, FP16, CPU, 2_300_000_000, 1, 1024)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    config = {**folders.OLD_GEMMA, "vocab_size": 304, "hidden_size": 64, "intermediate_size": 96,
              "num_hidden_layers": 3, "eos_token_id": None}  # fmt: skip
    return folders.write(folder, config, tiny.weights(SPECS["gemma3"]))


def run(model: Path, out: Path, *more: str) -> int:
    return main(["--model", "gemma", "--weights", str(model), "--out", str(out), "--device", "cpu",
                 "--steps", "3", "--threads", "1", *more])  # fmt: skip


def test_through_the_door(model: Path, tmp_path: Path) -> None:
    assert run(model, tmp_path / "a.jsonl", "--quant", "q4f16_1") == 0
    lines = recorded(tmp_path / "a.jsonl")
    meta = {k: v for line in of_kind(lines, "run") for k, v in line["meta"].items()}
    assert (meta["quant"], meta["dtype"]) == ("q4f16_1", "float16")
    assert (
        "codes" in meta["computed"] and ("8 bits" if processor.list_kinds() else "bf16") in meta["computed"]
    )
    assert meta["bytes_per_token"] == round(count_parameters(SPECS["gemma3"]) * 4.5 / 8)
    table = tiny.weights(SPECS["gemma3"])
    packed = meant(table, QUANT_FORMATS["q4f16_1"])
    apart, length = torch.zeros(()), torch.zeros(())
    for name in (k for k, v in table.items() if v.dim() == 2):
        apart += (table[name] - packed[name]).square().sum()
        length += table[name].square().sum()
    wanted = float(apart / length) ** 0.5
    assert meta["quant_error"] == pytest.approx(wanted, abs=1e-5)
    notes = [m["name"] for m in of_kind(lines, "mark", path="note")]
    assert any(n.startswith(f"q4f16_1: {100 * wanted:.2g} % error of the weights; ") for n in notes)
    rows = {op["name"] for op in ops_of(lines).values()}
    assert {"dequant+ffn_gate_up", "dequant+lm_head", "attention"} <= rows


def test_what_contradicts_itself_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, tmp_path / "a.jsonl", "--quant", "q8_0", "--dtype", "bf16") == 2
    assert "--quant q8_0 sets the dtype" in capsys.readouterr().err


def test_both_doors_offer_the_same() -> None:
    assert _engine_options.QUANTS == QUANTS == ("auto", "q0f16", *QUANT_FORMATS)
