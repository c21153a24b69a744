"""Matrix kernels under Triton's interpreter, against their references."""

import pytest
import torch

from engines.kernels import gate_up_act, gemv, int8_gemv, w4a16_gemv
from engines.kernels.launch import Tile
from engines.weights import low_bit, packed_matrices
from tests.engines.kernels.compare import DTYPES, close, rand

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
    partial, out = torch.full((split, 2, 9), 7.0), torch.empty(2, 9)
    gemv.launch(x, weight, partial, bias=bias, tile=Tile(4, 64, 1))
    gemv.merge(partial, out)
    close(out, gemv.reference(x, weight, bias))
    close(partial.sum(0), gemv.reference(x, weight, bias))


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
    w4a16_gemv.launch(x, words, scales, out, Tile(4, 4, 1))
    close(out, w4a16_gemv.reference(x, words, scales))


def test_w4a16_split() -> None:
    x, (words, scales) = rand(2, 320), packed(9, 320, torch.float32)
    partial = torch.empty(4, 2, 9)
    w4a16_gemv.launch(x, words, scales, partial, Tile(4, 2, 1))
    close(partial.sum(0), w4a16_gemv.reference(x, words, scales))


def test_every_code_at_every_place_is_exact() -> None:
    """One weight at a time: (code - 7) · scale, without an error in the last digit."""
    codes = torch.arange(15).repeat_interleave(8)
    words = torch.zeros(120, 4, dtype=torch.int64)
    for line, code in enumerate(codes.tolist()):
        word = sum((code if place == line % 8 else 7) << 4 * place for place in range(8))
        words[line] = torch.tensor([word] + [0x77777777] * 3)
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words).int()
    out = torch.empty(1, 120)
    w4a16_gemv.launch(torch.full((1, 32), 3.0), signed, torch.full((120, 1), 0.1), out, Tile(8, 1, 1))
    assert torch.equal(out[0], (codes - 7).float() * 3.0 * torch.tensor(0.1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gelu", [False, True])
def test_w4a16_gate_up(gelu: bool, dtype: torch.dtype) -> None:
    x, (words, scales) = rand(2, 96, dtype=dtype), packed(14, 96, dtype)
    out = torch.empty(2, 7, dtype=dtype)
    w4a16_gemv.gate_up(x, words, scales, out, gelu=gelu, tile=Tile(4, 2, 1))
    close(out, w4a16_gemv.gate_up_reference(x, words, scales, gelu=gelu))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "n", "k", "split"), [(1, 7, 32, 1), (2, 9, 224, 1), (2, 9, 320, 4)])
def test_int8_gemv(rows: int, n: int, k: int, split: int, dtype: torch.dtype) -> None:
    x, codes = rand(rows, k, dtype=dtype), torch.randint(-127, 128, (n, k), dtype=torch.int8)
    scales = rand(n, k // 32, dtype=dtype) / 64
    out = torch.empty(split, rows, n) if split > 1 else torch.empty(rows, n, dtype=dtype)
    int8_gemv.launch(x, codes, scales, out, Tile(4, 64, 1))
    close(out.sum(0) if split > 1 else out, int8_gemv.reference(x, codes, scales))


@pytest.mark.parametrize("name", low_bit.FORMS)
@pytest.mark.parametrize(("rows", "n"), [(1, 20), (9, 20)])
def test_a_packed_matrix_multiplies_by_its_kernel(name: str, rows: int, n: int) -> None:
    """The form as it is packed, the split of the table and the sum of its parts."""
    packed = low_bit.pack(rand(n, 160), low_bit.FORMS[name])
    multiplied, x = packed_matrices.Kernel(packed), rand(rows, 160)
    assert multiplied._split > 1
    close(multiplied(x), x @ packed.unpacked().T)
