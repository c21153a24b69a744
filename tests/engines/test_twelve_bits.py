"""Weights of bf16 in twelve bits: the very numbers come back, and products are those of the numbers."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from engines import processor
from engines.models.catalogue import find_preset
from engines.models.spec import count_parameters
from engines.processor import MAX_COMPILED_ROWS
from engines.weights import bf12_storage, fastest_storage, matrix_storage
from engines.weights.bf12_storage import Bf12Matrix, Bf12Storage, encode
from engines.weights.low_bit import QUANT_FORMATS, pack
from tests.engines import plain, tiny
from tests.engines.test_engine import main, of_kind, recorded

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(
    not processor.has_kind(bf12_storage.KIND, CPU), reason="not for this processor"
)

SHAPES = [(8, 64), (33, 256), (40, 576), (7, 1152), (50, 2048), (70, 4864)]


def weight(n: int, k: int, seed: int = 0) -> torch.Tensor:
    return (torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 0.02).bfloat16()


def every_number() -> torch.Tensor:
    """All 65,536 numbers of bf16, among a million usual ones."""
    words = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    return torch.cat((weight(1000, 1024), words.view(torch.bfloat16).view(64, 1024)))


def with_zeros() -> torch.Tensor:
    """A pruned matrix: two thirds are zero, of both signs."""
    w = weight(40, 512)
    w.view(-1)[::3] = 0.0
    w.view(-1)[1::3] = -0.0
    return w


def bits(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.view(torch.int16)


def short(w: torch.Tensor) -> Bf12Matrix:
    found = encode(w)
    assert found
    return found


@pytest.mark.parametrize("make", [every_number, with_zeros, *(lambda s=s: weight(*s) for s in SHAPES)])
def test_the_very_numbers_come_back(make: Callable[[], torch.Tensor]) -> None:
    w = make()
    ids = torch.randperm(len(w), generator=torch.Generator().manual_seed(1))
    assert torch.equal(bits(short(w).decode_rows(ids)), bits(w[ids]))


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_the_numbers(shape: tuple[int, int], m: int) -> None:
    w, x = weight(*shape), weight(m, shape[1], seed=1) * 50
    w.view(-1)[[0, 3, 64, 100]] = torch.tensor([1e-9, -0.0, -3.0, 1e-30], dtype=torch.bfloat16)
    wanted = x.double().numpy() @ w.double().numpy().T
    product = short(w).make_product()(x).double().numpy()
    assert np.linalg.norm(product - wanted) < 1e-6 * np.linalg.norm(wanted)


def test_a_number_that_is_none_makes_a_product_that_is_none() -> None:
    w = weight(3, 128)
    w[1, 5], w[2, 7] = float("nan"), float("inf")
    product = short(w).make_product()(torch.ones(1, 128, dtype=torch.bfloat16))
    assert product.isfinite()[0, 0] and product.isnan()[0, 1] and product[0, 2] == float("inf")


def test_it_takes_twelve_bits() -> None:
    """And four bytes a row, and eight for each of the few numbers that have no code."""
    w = weight(2048, 2048)
    exponents = bits(w).to(torch.int32).bitwise_right_shift(8).bitwise_and(127)
    without = w.numel() - int(torch.bincount(exponents.view(-1), minlength=128).topk(8).values.sum())
    assert 0 < without < w.numel() / 3000
    assert short(w).size == w.numel() * 3 // 2 + 64 + 4 * 2050 + 8 * without


def test_numbers_of_many_exponents_stay_as_they_are() -> None:
    """And the bytes of a weight are told as they are."""
    words = torch.randint(-(1 << 15), 1 << 15, (64, 1024), generator=torch.Generator().manual_seed(0))
    odd, way = words.to(torch.int16).view(torch.bfloat16), Bf12Storage()
    assert encode(odd) is None
    assert way.weight_bytes == 1.5
    table, matrix = way.build_embedding_and_head(odd, None, CPU)
    assert isinstance(matrix, matrix_storage.PlainMatrix) and way.weight_bytes == 2.0
    assert torch.equal(bits(table(torch.tensor([3, 0]))), bits(odd[[3, 0]]))
    way.build_matrix(weight(1024, 1024), CPU)
    assert 1.5 < way.weight_bytes < 1.56


@pytest.mark.parametrize("m", [1, MAX_COMPILED_ROWS, MAX_COMPILED_ROWS + 1])
def test_many_rows_multiply_too(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf12_storage, "UNPACK_WEIGHTS", 10 * 256)
    w, x = weight(37, 256), weight(m, 256, seed=1).float()
    matrix = Bf12Storage().build_matrix(w, CPU)
    wanted = (x.bfloat16().double() @ w.double().T).float()
    out, bias = torch.empty(m, 37), torch.arange(37.0)
    matrix.multiply_into(x, out, bias)
    for actual, meant in ((matrix(x).float(), wanted), (out, wanted + bias)):
        assert (actual - meant).norm() < (1e-6 if m <= MAX_COMPILED_ROWS else 4e-3) * meant.norm()


def test_a_tied_table_lies_once() -> None:
    w, way, ids = weight(300, 256), Bf12Storage(), torch.tensor([299, 0, 7, 7])
    tied, head = way.build_embedding_and_head(w, None, CPU)
    assert isinstance(head, bf12_storage.Bf12Product)
    assert tied == head.weight.decode_rows and torch.equal(tied(ids), w[ids])
    other, head = way.build_embedding_and_head(w, weight(200, 256, seed=1), CPU)
    assert isinstance(head, bf12_storage.Bf12Product) and other != head.weight.decode_rows
    assert torch.equal(other(ids), w[ids]) and torch.equal(
        head.weight.decode_rows(ids[1:2]), weight(200, 256, seed=1)[:1]
    )


def test_a_packed_matrix_is_taken_as_its_numbers() -> None:
    packed = pack(weight(64, 256), QUANT_FORMATS["q8_0"])
    matrix = Bf12Storage().build_matrix(packed, CPU)
    assert isinstance(matrix, bf12_storage.Bf12Product)
    assert torch.equal(matrix.weight.decode_rows(torch.arange(64)), packed.unpack().bfloat16())


@pytest.mark.parametrize("ids", [[-1], [0, 3]])
def test_a_row_that_is_not_there_is_refused(ids: list[int]) -> None:
    with pytest.raises(IndexError, match="row index out of range"):
        short(weight(3, 256)).decode_rows(torch.tensor(ids))


def test_no_rows_are_none() -> None:
    assert short(weight(3, 256)).decode_rows(torch.tensor([], dtype=torch.int64)).shape == (0, 256)


def test_it_is_the_usual_way_where_rows_are_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless bf16 is asked for by its name."""
    spec = find_preset("llama-3.2-1b")
    assert fastest_storage.find_fastest_storage(spec, "auto", CPU)[0].name == "bf16 in 12 bits"
    assert fastest_storage.find_fastest_storage(spec, "bf16", CPU)[0] is matrix_storage.BF16
    assert fastest_storage.find_storage("bf16 in 12 bits", "auto", CPU).weight_bytes == 1.5
    assert fastest_storage.find_storage("bf16", "bf16", CPU) is matrix_storage.BF16
    assert bf12_storage.can_store(find_preset("smollm2-135m"), CPU)  # rows of 576
    assert not bf12_storage.can_store(dataclasses.replace(spec, hidden=2080), CPU)
    monkeypatch.setattr(processor, "list_kinds", lambda: ("bf16", "fp16"))
    assert fastest_storage.find_fastest_storage(spec, "auto", CPU)[0] is matrix_storage.BF16


@pytest.mark.corpus
@pytest.mark.parametrize("family", ["gemma3", "qwen2", "qwen3"])  # tied, with biases, untied
@pytest.mark.slow
def test_a_decoder_decodes_with_the_very_weights(family: str) -> None:
    """As the plain decoder in fp64 with the same weights: what is left is rows of bf16."""
    spec = dataclasses.replace(tiny.SPECS[family], hidden=64, head_dim=16, ffn=192)
    table = {name: w.bfloat16().float() for name, w in tiny.weights(spec).items()}
    ids = torch.randint(0, spec.vocab, (1, 60), generator=torch.Generator().manual_seed(1))
    assert bf12_storage.can_store(spec, CPU)
    way = Bf12Storage()
    actual = tiny.logits(tiny.decoder(spec, table, packing=way), ids, prefill=40)
    wanted = plain.forward(spec, table, ids[0].tolist())[39:]
    assert way.weight_bytes < 2
    assert float((actual[0] - wanted).norm() / wanted.norm()) < 0.03
    off = {name: w + 2**-7 * w.abs().max() * (w.dim() == 2) for name, w in table.items()}
    other = tiny.logits(tiny.decoder(spec, off, packing=Bf12Storage()), ids, prefill=40)
    assert float((other[0] - wanted).norm() / wanted.norm()) > 0.06, "the weights matter"


def test_a_recording_tells_what_was_read(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    assert main(["--model", "smollm2-135m", "--weights", "random", "--out", str(out), "--steps", "2"]) == 0
    lines = recorded(out)
    meta = {k: v for line in of_kind(lines, "run") for k, v in line["meta"].items()}
    assert (meta["packing"], meta["quant"], meta["dtype"]) == ("bf16 in 12 bits", "q0f16", "bfloat16")
    assert 1.5 < meta["bytes_per_token"] / count_parameters(find_preset("smollm2-135m")) < 1.52
