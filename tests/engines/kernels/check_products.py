"""Matrix kernels under Triton's interpreter, against their references."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from engines.kernels import add_rmsnorm, gate_up_act, gemv, int8_gemv, rows_product, w4a16_gemv
from engines.kernels.launch_support import Tile
from engines.weights import low_bit, quantised_storage
from tests.engines.kernels.compare import DTYPES, activated, close, rand

SHAPES = [(1, 7, 64), (3, 33, 200)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
@pytest.mark.parametrize("biased", [False, True])
def test_gemv(rows: int, n: int, k: int, biased: bool, dtype: torch.dtype) -> None:
    x, weight, out = rand(rows, k, dtype=dtype), rand(n, k, dtype=dtype), torch.full((rows, n), 7.0).to(dtype)
    bias = rand(n) if biased else None
    gemv.launch(x, weight, out, bias=bias, tile=Tile(4, 64, 1))
    close(out, gemv.reference(x, weight, bias))


@pytest.mark.parametrize("split", [2, 4, 8])
def test_partial_sums_of_a_split_row_add_up(split: int) -> None:
    """Eight programs on five blocks: three of them have nothing to do, and the bias counts once."""
    x, weight, bias = rand(2, 300), rand(9, 300), rand(9)
    sums, out = torch.full((split, 2, 9), 7.0), torch.empty(2, 9)
    gemv.launch(x, weight, sums, bias=bias, tile=Tile(4, 64, 1))
    gemv.merge(sums, out)
    close(out, gemv.reference(x, weight, bias))
    close(sums.sum(0), gemv.reference(x, weight, bias))


@pytest.mark.parametrize("n", [5, 1025, 4097])
def test_the_table_fits_every_size(n: int) -> None:
    x, weight, out = rand(1, 40), rand(n, 40), torch.empty(1, n)
    gemv.launch(x, weight, out, tile=Tile(512, 64, 4)) if n > 1024 else gemv.launch(x, weight, out)
    close(out, gemv.reference(x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
@pytest.mark.parametrize("gelu", [False, True])
def test_gate_up_act(rows: int, n: int, k: int, gelu: bool, dtype: torch.dtype) -> None:
    x, weight, out = (
        rand(rows, k, dtype=dtype),
        rand(2 * n, k, dtype=dtype),
        torch.empty(rows, n, dtype=dtype),
    )
    gate_up_act.launch(x, weight, out, gelu=gelu, tile=Tile(4, 64, 1))
    close(out, gate_up_act.reference(x, weight, gelu=gelu))


def packed(n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Words of random codes 0–14, and scales."""
    codes = torch.randint(0, 15, (n, k // 8, 8), dtype=torch.int64)
    words = (codes << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int(), rand(n, k // 32, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 7, 32), (2, 9, 96), (1, 5, 320)])
def test_w4a16_gemv(rows: int, n: int, k: int, dtype: torch.dtype) -> None:
    x, (words, scales) = rand(rows, k, dtype=dtype), packed(n, k, dtype)
    out = torch.empty(rows, n, dtype=dtype)
    w4a16_gemv.launch(x, words, out, scales=scales, tile=Tile(4, 4, 1))
    close(out, w4a16_gemv.reference(x, words, scales))


def test_w4a16_split() -> None:
    x, (words, scales) = rand(2, 320), packed(9, 320, torch.float32)
    parts = torch.empty(4, 2, 9)
    w4a16_gemv.launch(x, words, parts, scales=scales, tile=Tile(4, 2, 1))
    close(parts.sum(0), w4a16_gemv.reference(x, words, scales))


def test_every_code_at_every_place_is_exact() -> None:
    """One weight at a time: (code - 7) · scale, without an error in the last digit."""
    codes = torch.arange(15).repeat_interleave(8)
    words = torch.zeros(120, 4, dtype=torch.int64)
    for line, code in enumerate(codes.tolist()):
        word = sum((code if place == line % 8 else 7) << 4 * place for place in range(8))
        words[line] = torch.tensor([word] + [0x77777777] * 3)
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words).int()
    out = torch.empty(1, 120)
    x, scales = torch.full((1, 32), 3.0), torch.full((120, 1), 0.1)
    w4a16_gemv.launch(x, signed, out, scales=scales, tile=Tile(8, 1, 1))
    assert torch.equal(out[0], (codes - 7).float() * 3.0 * torch.tensor(0.1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gelu", [False, True])
def test_w4a16_gate_up(gelu: bool, dtype: torch.dtype) -> None:
    x, (words, scales) = rand(2, 96, dtype=dtype), packed(14, 96, dtype)
    out = torch.empty(2, 7, dtype=dtype)
    w4a16_gemv.gate_up(x, words, out, scales=scales, gelu=gelu, tile=Tile(4, 2, 1))
    close(out, activated(w4a16_gemv.reference(x, words, scales), gelu=gelu))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "n", "k", "split"), [(1, 7, 32, 1), (2, 9, 224, 1), (2, 9, 320, 4)])
@pytest.mark.parametrize("biased", [False, True])
def test_int8_gemv(rows: int, n: int, k: int, split: int, biased: bool, dtype: torch.dtype) -> None:
    x, codes = rand(rows, k, dtype=dtype), torch.randint(-127, 128, (n, k), dtype=torch.int8)
    scales, bias = rand(n, k // 32, dtype=dtype) / 64, rand(n) if biased else None
    out = torch.empty(split, rows, n) if split > 1 else torch.empty(rows, n, dtype=dtype)
    int8_gemv.launch(x, codes, out, scales=scales, bias=bias, tile=Tile(4, 4, 1))
    wanted = int8_gemv.reference(x, codes, scales)
    close(out.sum(0) if split > 1 else out, wanted if bias is None else wanted + bias)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gelu", [False, True])
def test_int8_gate_up(gelu: bool, dtype: torch.dtype) -> None:
    x, codes = rand(2, 96, dtype=dtype), torch.randint(-127, 128, (14, 96), dtype=torch.int8)
    scales, out = rand(14, 3, dtype=dtype) / 64, torch.empty(2, 7, dtype=dtype)
    int8_gemv.gate_up(x, codes, out, scales=scales, gelu=gelu, tile=Tile(4, 4, 1))
    close(out, activated(int8_gemv.reference(x, codes, scales), gelu=gelu))


def multiplied(form: str, x: torch.Tensor, n: int, **given: Any) -> tuple[Callable[..., None], torch.Tensor]:
    """What launches the product of x and a matrix of a form, and that product in fp32."""
    weight = rand(n, x.shape[1])
    if form == "fp32":
        return partial(gemv.launch, x, weight, tile=Tile(4, 32, 1), **given), x @ weight.T
    packed = low_bit.pack(weight, low_bit.QUANT_FORMATS[form])
    launch = quantised_storage.load_packed_kernel(packed).launch
    product = x @ packed.unpack().T
    return partial(launch, x, packed.codes, scales=packed.scales, tile=Tile(4, 2, 1), **given), product


@pytest.mark.parametrize("form", ["fp32", *low_bit.QUANT_FORMATS])
@pytest.mark.parametrize(("split", "rows", "sandwich"), [(1, 1, True), (4, 2, False)])
def test_the_last_program_finishes_its_row(form: str, split: int, rows: int, sandwich: bool) -> None:
    """Twice: the counters are back at nothing, and the stream has grown."""
    n, x = 9, rand(rows, 160)
    stream, norm, post = rand(rows, n), rand(n) + 2, rand(n) + 3 if sandwich else None
    normed, arrived = torch.full((rows, n), 7.0), torch.zeros(rows, dtype=torch.int32)
    finish = add_rmsnorm.ProductFinish(stream.clone(), norm, normed, arrived, 1e-6, post)
    launch, product = multiplied(form, x, n, finish=finish)
    for _ in range(2):
        launch(out=torch.empty(split, rows, n) if split > 1 else torch.empty(rows, n))
        wanted, stream = add_rmsnorm.reference(product, norm, 1e-6, stream=stream, post=post)
        close(normed, wanted)
        close(finish.stream, stream)
        assert not arrived.any()


@pytest.mark.parametrize("form", ["q4f16_1", "q8_0"])
def test_a_bias_counts_once(form: str) -> None:
    x, bias, out = rand(2, 320), rand(9), torch.empty(4, 2, 9)
    launch, product = multiplied(form, x, 9, bias=bias)
    launch(out=out)
    close(out.sum(0), product + bias)


FORMS = ["fp32", "fp16", *low_bit.QUANT_FORMATS]


def stored(form: str, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """A matrix as the kernels take it, its scales, and its numbers."""
    weight = rand(n, k)
    if form not in low_bit.QUANT_FORMATS:
        plain = weight.to(torch.float16 if form == "fp16" else torch.float32)
        return plain, None, plain.float()
    packed = low_bit.pack(weight, low_bit.QUANT_FORMATS[form])
    return packed.codes, packed.scales, packed.unpack()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [8, 70])
def test_rows_product(form: str, rows: int) -> None:
    """A block of rows, several, and no whole number of them; columns that end within a block."""
    weight, scales, numbers = stored(form, 37, 160)
    x, bias = rand(rows, 160, dtype=torch.float16 if form == "fp16" else torch.float32), rand(37)
    out = torch.full((rows, 37), 7.0).to(x.dtype)
    rows_product.launch(x, weight, out, scales=scales, bias=bias)
    close(out, rows_product.reference(x, numbers, bias))


@pytest.mark.parametrize(("form", "gelu"), list(zip(FORMS, (False, True, False, True, False), strict=True)))
def test_rows_gate_up(form: str, gelu: bool) -> None:
    weight, scales, numbers = stored(form, 74, 160)
    x = rand(8, 160, dtype=torch.float16 if form == "fp16" else torch.float32)
    out = torch.empty(8, 37, dtype=x.dtype)
    rows_product.launch(x, weight, out, scales=scales, gelu=gelu)
    close(out, activated(rows_product.reference(x, numbers), gelu=gelu))


@pytest.mark.parametrize(("form", "split"), [("fp32", 1), ("q4f16_1", 2), ("q8_0", 2)])
def test_rows_are_finished_by_the_last_program(form: str, split: int) -> None:
    weight, scales, numbers = stored(form, 37, 160)
    x, stream, norm = rand(8, 160), rand(8, 37), rand(37) + 2
    arrived = torch.zeros(8, dtype=torch.int32)
    finish = add_rmsnorm.ProductFinish(stream.clone(), norm, torch.empty(8, 37), arrived, 1e-6)
    out = torch.empty(split, 8, 37) if split > 1 else torch.empty(8, 37)
    rows_product.launch(x, weight, out, scales=scales, finish=finish)
    wanted, stream = add_rmsnorm.reference(x @ numbers.T, norm, 1e-6, stream=stream)
    close(finish.out, wanted)
    close(finish.stream, stream)
    assert not arrived.any()


@pytest.mark.parametrize("name", low_bit.QUANT_FORMATS)
@pytest.mark.parametrize(("rows", "n"), [(1, 20), (9, 20)])
def test_a_packed_matrix_multiplies_by_its_kernel(name: str, rows: int, n: int) -> None:
    """The form as it is packed, the split of the table and the sum of its parts."""
    packed = low_bit.pack(rand(n, 160), low_bit.QUANT_FORMATS[name])
    multiplied, x = quantised_storage.TritonMatrix(packed), rand(rows, 160)
    assert multiplied._split > 1
    close(multiplied(x), x @ packed.unpack().T)
