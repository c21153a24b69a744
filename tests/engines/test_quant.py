"""Four and eight bits, against the formats written down a second time in numpy."""

import numpy as np
import pytest
import torch

from engines import processor
from engines.weights import low_bit, quantised_storage
from engines.weights.low_bit import QUANT_FORMATS, QuantFormat
from engines.weights.quantised_storage import QuantisedStorage

CPU = torch.device("cpu")


@pytest.fixture
def in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nothing is compiled."""
    monkeypatch.setattr(processor, "list_kinds", tuple)


def weights(n: int, k: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n * k)
    spread = torch.rand(n, 1, generator=generator) * 0.1
    return torch.randn(n, k, generator=generator) * spread


def in_numpy(weight: np.ndarray, form: QuantFormat) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes as stored, scales and weights, one group after the other."""
    n, k = weight.shape
    scale_type = np.float32 if form.name == "q4f32_1" else np.float16
    stored = np.zeros((n, k // 8), np.uint32) if form.bits == 4 else np.zeros((n, k), np.int8)
    scales, meant = np.zeros((n, k // 32), scale_type), np.zeros((n, k), np.float32)
    for row in range(n):
        for group in range(k // 32):
            values = weight[row, group * 32 : group * 32 + 32]
            scale = scale_type(np.abs(values).max() / np.float32(form.max_code))
            scales[row, group] = scale
            for i, value in enumerate(values):
                at = group * 32 + i
                code = int(np.rint(value / np.float32(scale))) if scale else 0
                code = max(-form.max_code, min(form.max_code, code))
                meant[row, at] = np.float32(code) * np.float32(scale)
                if form.bits == 4:
                    stored[row, at // 8] |= np.uint32((code + 7) << 4 * (at % 8))
                else:
                    stored[row, at] = code
    return stored, scales, meant


@pytest.mark.parametrize("form", QUANT_FORMATS.values(), ids=QUANT_FORMATS)
def test_packing_by_the_letter(form: QuantFormat) -> None:
    weight = weights(5, 96)
    weight[2, 32:64] = 0.0
    stored, scales, meant = in_numpy(weight.numpy(), form)
    packed = low_bit.pack(weight, form)
    assert packed.codes.numpy().view(stored.dtype).tolist() == stored.tolist()
    assert packed.scales.numpy().tolist() == scales.tolist()
    assert packed.unpack().numpy().tolist() == meant.tolist()
    assert (packed.rows, packed.columns) == (5, 96)


def test_a_word_written_by_hand() -> None:
    """-7…7 with a scale of 1: codes 0…14, the lowest bits first; the rest is 0, code 7."""
    weight = torch.zeros(1, 32)
    weight[0, :16] = torch.tensor([-7.0, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 0])
    packed = low_bit.pack(weight, QUANT_FORMATS["q4f16_1"])
    words = packed.codes.view(torch.uint32)[0].tolist()
    assert words == [0x76543210, 0x7EDCBA98, 0x77777777, 0x77777777]
    assert torch.equal(packed.unpack(), weight)


@pytest.mark.parametrize(("name", "bits"), [("q4f16_1", 4.5), ("q4f32_1", 5.0), ("q8_0", 8.5)])
def test_bits_per_weight_are_what_is_stored(name: str, bits: float) -> None:
    packed = low_bit.pack(weights(64, 256), QUANT_FORMATS[name])
    assert QUANT_FORMATS[name].bits_per_weight == bits
    assert (packed.codes.nbytes + packed.scales.nbytes) * 8 / (64 * 256) == bits


def test_code_15_never_appears() -> None:
    packed = low_bit.pack(weights(128, 128), QUANT_FORMATS["q4f16_1"])
    assert packed.unpack_codes().min() == -7
    assert packed.unpack_codes().max() == 7


@pytest.mark.parametrize("form", QUANT_FORMATS.values(), ids=QUANT_FORMATS)
def test_pieces_give_the_whole(form: QuantFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, heard = weights(200, 64), []
    whole = low_bit.pack(weight, form)
    monkeypatch.setattr(low_bit, "CHUNK_WEIGHTS", 64 * 64)
    parts = low_bit.pack(weight, form, heard.append)
    assert torch.equal(parts.codes, whole.codes)
    assert torch.equal(parts.scales, whole.scales)
    assert heard == [64 * 64, 64 * 64, 64 * 64, 8 * 64]
    assert torch.equal(torch.cat([p.unpack() for p in parts.iter_chunks()]), whole.unpack())


@pytest.mark.parametrize("form", QUANT_FORMATS.values(), ids=QUANT_FORMATS)
def test_error_is_stated(form: QuantFormat) -> None:
    """Of all matrices together, the table among them."""
    storage = QuantisedStorage(form, CPU)
    assert storage.error == 0.0
    both = weights(70, 96), weights(64, 32) * 5
    storage.build_embedding_and_head(both[0], None, CPU)
    storage.build_matrix(both[1], CPU)
    wide = [w.numpy().astype(np.float64) for w in both]
    apart = [w - in_numpy(w.astype(np.float32), form)[2] for w in wide]
    wanted = (sum((a**2).sum() for a in apart) / sum((w**2).sum() for w in wide)) ** 0.5
    assert storage.error == pytest.approx(wanted, rel=1e-5)


def test_rows_that_are_not_whole_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        low_bit.pack(torch.zeros(4, 33), QUANT_FORMATS["q8_0"])


def test_embedding_takes_rows_alone() -> None:
    weight = weights(40, 64)
    table, _ = QuantisedStorage(QUANT_FORMATS["q4f16_1"], CPU).build_embedding_and_head(weight, None, CPU)
    ids = torch.tensor([3, 39, 3])
    assert torch.equal(table(ids), low_bit.pack(weight, QUANT_FORMATS["q4f16_1"]).unpack()[ids])


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize(
    ("name", "n", "tolerance"),
    [("q4f32_1", 128, 1e-5), ("q4f16_1", 128, 8e-3), ("q4f16_1", 7, 1e-6), ("q8_0", 128, 2.5e-2)],
)
@pytest.mark.usefixtures("in_torch")
def test_products_of_torch(name: str, n: int, tolerance: float, rows: int) -> None:
    """Against the exact product of what is stored, in double precision."""
    packed, x = low_bit.pack(weights(n, 128), QUANT_FORMATS[name]), weights(rows, 128) * 50
    multiplied = quantised_storage.make_matrix(packed)
    product, wanted = multiplied(x), x.double() @ packed.unpack().double().T
    assert torch.equal(multiplied(x.to(multiplied.input_dtype)), product)
    assert float((product - wanted).norm() / wanted.norm()) < tolerance
    assert multiplied.computed


@pytest.mark.usefixtures("in_torch")
def test_what_was_computed_is_said() -> None:
    weight = weights(64, 64)
    output = {
        name: quantised_storage.make_matrix(low_bit.pack(weight, form)).computed
        for name, form in QUANT_FORMATS.items()
    }
    assert "bf16" in output["q4f16_1"]
    assert "fp32" in output["q4f32_1"]
    assert "per row" in output["q8_0"]


@pytest.mark.usefixtures("in_torch")
def test_what_is_read_is_no_more_than_stored() -> None:
    """Torch's own packing of four bits takes the same codes; its scales come in pairs."""
    form, cpu = QUANT_FORMATS["q4f16_1"], torch.device("cpu")
    product = quantised_storage.make_matrix(low_bit.pack(weights(64, 256), form))
    held = sum(part.nbytes for part in vars(product).values() if isinstance(part, torch.Tensor))
    assert held == 64 * 256 // 2 + 64 * 8 * 4
    assert held == 64 * 256 * QuantisedStorage(form, cpu).held_bytes


def test_a_gpu_unpacks_in_few_pieces() -> None:
    """The head of llama-3.2-1b, 263 million weights: in pieces for a processor's caches 257 launches."""
    rows, columns = 128256, 2048
    with torch.device("meta"):
        codes = torch.empty(rows, columns // 8, dtype=torch.int32)
        scales = torch.empty(rows, columns // 32, dtype=torch.float16)
    packed = low_bit.PackedMatrix(low_bit.QUANT_FORMATS["q4f16_1"], codes, scales)
    pieces = [piece.rows for piece in packed.iter_chunks()]
    assert sum(pieces) == rows and len(pieces) == 4
