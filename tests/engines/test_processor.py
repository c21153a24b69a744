"""Compiled products against numpy in double precision, and against torch's in their place."""

import ctypes
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from capture.extensions import OFF_VARIABLE
from engines import processor
from engines.processor import CpuProduct
from engines.weights import low_bit, matrix_storage, quantised_storage
from engines.weights.low_bit import QUANT_FORMATS, PackedMatrix

pytestmark = pytest.mark.skipif(not processor.list_kinds(), reason="nothing is compiled for this processor")

CPU = torch.device("cpu")
FORM_OF = {"int4": QUANT_FORMATS["q4f16_1"], "int8": QUANT_FORMATS["q8_0"]}
DTYPE_OF = {"bf16": torch.bfloat16, "fp16": torch.float16}
# rows, columns: one group; blocks cut short within a vector, at one and beyond; more rows than a piece has
SHAPES = [(1, 32), (33, 96), (50, 640), (7, 1152), (70, 4864)]


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rounded(x: torch.Tensor) -> np.ndarray:
    """Rows as eight bits stand for them: by groups of 32, the largest is 127, halves to even."""
    groups = x.numpy().reshape(len(x), -1, 32)
    tops = np.abs(groups).max(-1, keepdims=True)
    scales = tops / np.float32(127)
    factors = np.divide(np.float32(127), tops, out=np.zeros_like(tops), where=tops > 0)
    return (np.rint(groups * factors).astype(np.float64) * scales).reshape(x.shape)


def off(actual: torch.Tensor, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(actual.numpy() - wanted) / np.linalg.norm(wanted))


@pytest.mark.corpus
@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 8, 9, 23])
@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("kind", FORM_OF)
def test_low_bits_are_exact_but_for_the_rounded_rows(kind: str, n: int, k: int, m: int, threads: int) -> None:
    packed, x = low_bit.pack(numbers(n, k) * 0.05, FORM_OF[kind]), numbers(m, k, seed=1) * 3
    x[-1, : k // 2 // 32 * 32] = 0.0  # groups of nothing
    product = CpuProduct(kind, packed.codes, packed.scales)(x)
    stored = packed.unpack_codes().numpy().astype(np.float64).reshape(n, -1, 32)
    meant = (stored * packed.scales.numpy().astype(np.float64)[..., None]).reshape(n, k)
    assert product.dtype == torch.float32
    assert off(product, rounded(x) @ meant.T) < 1e-6
    assert off(product, x.double().numpy() @ meant.T) < 0.02


def test_a_product_is_off_by_what_rounding_its_rows_takes() -> None:
    """Rounding by a step is off by a step / √12 in the mean: 0.5 and 0.2 % of normal rows, as README says."""
    weight, x = numbers(512, 1152) * 0.05, numbers(4, 1152, seed=1)
    exact = x.double().numpy()
    steps = np.abs(exact.reshape(-1, 32)).max(-1) / 127
    expected = np.sqrt((steps**2).mean() / 12 / (exact**2).mean())
    for kind, form in FORM_OF.items():
        packed = low_bit.pack(weight, form)
        stored = packed.unpack_codes().double().reshape(512, -1, 32) * packed.scales.double()[..., None]
        wanted = exact @ stored.reshape(512, 1152).numpy().T
        actual = off(CpuProduct(kind, packed.codes, packed.scales)(x), wanted)
        assert actual == pytest.approx(expected, rel=0.1) and round(100 * actual, 1) == 0.5
    half = weight.to(torch.bfloat16)
    actual = off(CpuProduct("bf16", half)(x), exact @ half.double().numpy().T)
    assert actual == pytest.approx(off(x.to(torch.bfloat16).float(), exact), rel=0.1)
    assert round(100 * actual, 1) == 0.2


@pytest.mark.corpus
@pytest.mark.parametrize("m", [1, 2, 3, 4, 9])
@pytest.mark.parametrize(("n", "k"), [*SHAPES, (17, 33), (5, 1), (3, 31)])
@pytest.mark.parametrize("kind", DTYPE_OF)
def test_sixteen_bits_are_exact(kind: str, n: int, k: int, m: int, threads: int) -> None:
    weight, x = numbers(n, k).to(DTYPE_OF[kind]), numbers(m, k, seed=1).to(processor.INPUT_DTYPES[kind])
    wanted = x.double().numpy() @ weight.double().numpy().T
    assert off(CpuProduct(kind, weight)(x), wanted) < 1e-5


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("kind", [*FORM_OF, *DTYPE_OF])
def test_products_are_written_where_they_belong_with_a_bias(kind: str, apart: bool) -> None:
    """Into rows without gaps by compiled code, into others by torch; what lies beside stays."""
    weight, x, bias = numbers(50, 96), numbers(3, 96, seed=1), numbers(50, seed=2) * 9
    matrix: matrix_storage.Matrix = (
        quantised_storage.make_matrix(low_bit.pack(weight, FORM_OF[kind]))
        if kind in FORM_OF
        else matrix_storage.PlainMatrix(weight.to(DTYPE_OF[kind]))
    )
    room = torch.full((5, 60), 7.0)
    out = room[1:4, 5:55] if apart else room.view(-1)[60:210].view(3, 50)
    for added in (bias, None):
        matrix.multiply_into(x, out, added)
        wanted = matrix(x).double() + (0 if added is None else added.double())
        assert torch.allclose(out.double(), wanted, rtol=1e-6, atol=1e-6)
    assert int((room == 7).sum()) == 300 - 150


@pytest.mark.parametrize("m", [1, 8])
@pytest.mark.parametrize("kind", FORM_OF)
def test_the_largest_codes_do_not_overflow(kind: str, m: int) -> None:
    """Every product at its largest, in both signs, along the longest rows that a model may have."""
    k = 1 << 18
    weight = torch.ones(3, k)
    weight[1] = -1
    weight[2, ::2] = -1
    packed, x = low_bit.pack(weight, FORM_OF[kind]), torch.full((m, k), 5.0)
    wanted = rounded(x) @ packed.unpack().double().numpy().T
    assert np.allclose(CpuProduct(kind, packed.codes, packed.scales)(x).numpy(), wanted, rtol=1e-4, atol=1)


@pytest.mark.parametrize("m", [1, 9])
@pytest.mark.parametrize("kind", FORM_OF)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_no_number_stays_none(kind: str, value: float, m: int) -> None:
    packed, x = low_bit.pack(numbers(20, 96), FORM_OF[kind]), numbers(m, 96)
    x[m - 1, 40] = value
    finite = torch.isfinite(CpuProduct(kind, packed.codes, packed.scales)(x)).any(1)
    assert finite.tolist() == [True] * (m - 1) + [False]


@pytest.mark.parametrize("m", [1, 3, 40])
@pytest.mark.parametrize("kind", [*FORM_OF, *DTYPE_OF])
def test_torch_in_its_place_gives_the_same(kind: str, m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as either rounds: scales in bf16, rows in bf16 or eight bits."""
    weight, x = numbers(64, 256) * 0.05, numbers(m, 256, seed=1)

    def made() -> matrix_storage.Matrix:
        if kind in FORM_OF:
            return quantised_storage.make_matrix(low_bit.pack(weight, FORM_OF[kind]))
        return matrix_storage.PlainMatrix(weight.to(DTYPE_OF[kind]))

    compiled = made()
    monkeypatch.setattr(processor, "list_kinds", tuple)
    plain = made()
    product, wanted = compiled(x).float(), plain(x).float()
    assert float((product - wanted).norm() / wanted.norm()) < (0.02 if kind in FORM_OF else 0.005)
    assert isinstance(compiled, quantised_storage.RoundedActivationMatrix) == (kind in FORM_OF)
    assert not isinstance(plain, quantised_storage.RoundedActivationMatrix)


def test_nothing_is_held_twice() -> None:
    """Table and head of a tied model are one matrix, in the form's own order."""
    for name in ("q4f16_1", "q8_0"):
        packed = low_bit.pack(numbers(64, 96), QUANT_FORMATS[name])
        product = quantised_storage.make_matrix(packed)
        assert isinstance(product, quantised_storage.RoundedActivationMatrix)
        held = product._compiled._weights, product._compiled._second_part
        assert [t is not None and t.data_ptr() for t in held] == [
            packed.codes.data_ptr(),
            packed.scales.data_ptr(),
        ]
    table, head = matrix_storage.BF16.build_embedding_and_head(numbers(64, 96), None, CPU)
    assert isinstance(table, matrix_storage.PlainEmbedding) and isinstance(head, matrix_storage.PlainMatrix)
    assert table.weight.data_ptr() == head.weight.data_ptr()


def test_matrices_that_lie_apart_are_taken_as_they_read() -> None:
    packed = low_bit.pack(numbers(40, 128), QUANT_FORMATS["q8_0"])
    every_other = PackedMatrix(packed.format, packed.codes[::2], packed.scales[::2])
    x = numbers(4, 128, seed=1).T.contiguous().T
    wanted = rounded(x.contiguous()) @ every_other.unpack().double().numpy().T
    assert off(quantised_storage.make_matrix(every_other)(x), wanted) < 1e-6


def test_callers_on_several_threads_do_not_disturb_each_other(threads: int) -> None:
    weight = numbers(300, 640).bfloat16()
    products = [CpuProduct("bf16", weight[i * 50 :]) for i in range(4)]
    rows = [numbers(1, 640, seed=i) for i in range(4)]
    wanted = [product(x) for product, x in zip(products, rows, strict=True)]
    same: list[bool] = []

    def ask(i: int) -> None:
        torch.set_num_threads(threads)
        same.append(all(torch.equal(products[i](rows[i]), wanted[i]) for _ in range(300)))

    asking = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert same == [True] * 4


def before_a_wall(values: torch.Tensor) -> torch.Tensor:
    """Return the same numbers where memory ends: whoever touches a byte beyond ends the process."""
    whole = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, whole + mmap.PAGESIZE)
    there = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + whole
    nobody = 0
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(there), mmap.PAGESIZE, nobody) == 0
    placed = torch.frombuffer(memory, dtype=values.dtype, count=values.numel(), offset=whole - values.nbytes)
    return placed.view(values.shape).copy_(values)


@pytest.mark.parametrize("m", [3, 9])
@pytest.mark.parametrize(("n", "k"), [*SHAPES, (3, 160), (2, 33), (1, 1)])
@pytest.mark.parametrize("kind", [*FORM_OF, *DTYPE_OF])
def test_nothing_beyond_a_matrix_or_its_rows_is_read(kind: str, n: int, k: int, m: int) -> None:
    if kind in DTYPE_OF:
        parts = [numbers(n, k).to(DTYPE_OF[kind])]
    elif k % 32:
        pytest.skip("no whole groups")
    else:
        packed = low_bit.pack(numbers(n, k), FORM_OF[kind])
        parts = [packed.codes, packed.scales]
    x = numbers(m, k, seed=1).to(processor.INPUT_DTYPES[kind])
    walled = CpuProduct(kind, *map(before_a_wall, parts))(before_a_wall(x))
    assert torch.equal(walled, CpuProduct(kind, *parts)(x))


@pytest.mark.parametrize("kind", [*FORM_OF, *DTYPE_OF])
def test_rows_that_do_not_fit_are_refused(kind: str) -> None:
    weight = numbers(8, 64)
    packed = low_bit.pack(weight, FORM_OF[kind]) if kind in FORM_OF else None
    product = (
        CpuProduct(kind, packed.codes, packed.scales)
        if packed
        else CpuProduct(kind, weight.to(DTYPE_OF[kind]))
    )
    with pytest.raises(ValueError, match="rows of 96 numbers for a matrix of 64"):
        product(numbers(1, 96))


def test_sizes_that_no_matrix_has_are_refused_below() -> None:
    module = processor.PART.load()
    assert module
    for numbers_ in ((0, 32, 1, 1), (8, 33, 1, 1), (8, 32, 0, 1), (8, 32, 1, -1), (1 << 40, 32, 1, 1)):
        with pytest.raises(ValueError, match=r"sizes|multiple"):
            module.multiply(0, 0, 0, 0, 0, *numbers_, 0)
    with pytest.raises(ValueError, match="unknown kind"):
        module.multiply(0, 0, 0, 0, 0, 8, 32, 1, 1, len(module.KINDS))
    with pytest.raises(TypeError, match="10 numbers"):
        module.multiply(0)


GONE = """
import ctypes, gc, mmap, torch
from engines.processor import CpuProduct
torch.set_num_threads(3)
n, k = 600, 1024
x = torch.ones(1, k)
kept = CpuProduct("bf16", torch.ones(n, k).bfloat16())
for _ in range(100):
    memory = mmap.mmap(-1, n * k * 2)
    weights = torch.frombuffer(memory, dtype=torch.bfloat16).view(n, k).fill_(2)
    gone = CpuProduct("bf16", weights)
    for _ in range(3):
        assert kept(x).eq(k).all() and gone(x).eq(2 * k).all()
    del gone
    gc.collect()
    at = ctypes.c_void_p(weights.data_ptr())
    assert ctypes.CDLL(None).mprotect(at, n * k * 2, 0) == 0
    for _ in range(3):
        assert kept(x).eq(k).all()
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="nobody is there to read ahead")
@pytest.mark.slow
def test_weights_that_are_gone_are_not_read_ahead() -> None:
    """Memory that nobody may touch any more ends the process that does."""
    assert subprocess.run([sys.executable, "-c", GONE], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("n", [16, 200, 1000])
@pytest.mark.parametrize("kind", DTYPE_OF)
def test_nothing_beyond_the_next_matrix_is_read_ahead(kind: str, n: int, threads: int) -> None:
    """Matrices of several sizes in turn, as in a step, each before a wall."""
    products = [
        CpuProduct(kind, before_a_wall(torch.ones(n + i, 96).to(DTYPE_OF[kind]))) for i in (0, 7, 100)
    ]
    x = torch.ones(1, 96).to(processor.INPUT_DTYPES[kind])
    for _ in range(100):
        assert all(bool(product(x).eq(96).all()) for product in products)


FORKED = """
import os, torch
from engines.processor import CpuProduct
torch.set_num_threads(2)
weight, x = torch.ones(4000, 64).bfloat16(), torch.ones(1, 64)
product, other = CpuProduct("bf16", weight), CpuProduct("bf16", weight[1:])
assert product(x).eq(64).all() and other(x).eq(64).all()
child = os.fork()
same = all(bool(p(x).eq(64).all()) for p in (product, other) * 3)
if not child:
    os._exit(not same)
assert same and os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_a_forked_process_multiplies_too() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=60, check=False).returncode == 0


@pytest.mark.slow
def test_it_is_turned_off_by_the_environment() -> None:
    asked = "from engines import processor; print(processor.list_kinds(), processor.PART.describe_state())"
    result = subprocess.run(
        [sys.executable, "-c", asked], env={**os.environ, OFF_VARIABLE: "1"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert result.stdout == f"() off ({OFF_VARIABLE} is set)\n"


def test_sixteen_bits_are_one_way_and_measured_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same storage in every run, and none that holds a tied table twice."""
    assert (
        matrix_storage.list_candidates("auto", "cpu")
        == matrix_storage.list_candidates("bf16", "cpu")
        == (matrix_storage.BF16,)
    )
    assert matrix_storage.list_candidates("fp16", "cpu") == (matrix_storage.FP16,)
    assert matrix_storage.BF16.table_bytes == 0.0
    monkeypatch.setattr(processor, "list_kinds", tuple)
    assert matrix_storage.FP16 in matrix_storage.list_candidates("auto", "cpu")
