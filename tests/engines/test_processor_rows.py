"""Compiled norms, gates and attention, against torch in double precision."""

import pytest
import torch
from torch.nn import functional

from engines import processor
from engines.processor import row_ops
from tests.engines.test_processor import before_a_wall

pytestmark = pytest.mark.skipif(not processor.list_kinds(), reason="nothing is compiled for this processor")


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, None], ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1152), (3, 33), (2, 16), (1, 7)])
def test_rows_are_normed(m: int, n: int, dtype: torch.dtype | None) -> None:
    """In the dtype of the buffer, if it is one that is written; else in fp32."""
    x, weight = numbers(m, n) * 5, numbers(n, seed=1)
    out = None if dtype is None else torch.empty(m, n, dtype=dtype)
    normed = row_ops.norm_rows(x, weight, 1e-5, out)
    wanted = torch.rms_norm(x.double(), (n,), weight.double(), 1e-5)
    brain = dtype == torch.bfloat16
    assert normed.dtype == (dtype if brain else torch.float32)
    assert (normed is out) == (dtype in (torch.float32, torch.bfloat16))
    assert torch.allclose(normed.double(), wanted, rtol=2**-8 if brain else 1e-6, atol=1e-6)


def test_heads_are_normed_in_place_each_by_its_own_weight() -> None:
    x, weight = numbers(1, 1, 5, 64), numbers(5, 64, seed=1)
    wanted = torch.rms_norm(x.double(), (64,), None, 1e-6) * weight
    assert row_ops.norm_rows(x, weight, 1e-6, x) is x
    assert torch.allclose(x.double(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gelu", [True, False])
@pytest.mark.parametrize(("m", "n"), [(1, 6912), (3, 33)])
def test_gates(m: int, n: int, gelu: bool) -> None:
    both = numbers(m, 2 * n) * 10
    both[0, :6] = torch.tensor([0.0, 100.0, -100.0, 88.9, -88.9, -104.5])
    gate, up = both.double().chunk(2, -1)
    wanted = (functional.gelu(gate, approximate="tanh") if gelu else functional.silu(gate)) * up
    assert torch.allclose(row_ops.gate_rows(both, None, gelu=gelu).double(), wanted, rtol=3e-6, atol=1e-6)
    halves = torch.empty(m, n, dtype=torch.bfloat16)
    assert row_ops.gate_rows(both, halves, gelu=gelu) is halves
    assert torch.allclose(halves.double(), wanted, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dim", [16, 64, 256])
@pytest.mark.parametrize("count", [1, 20, 32, 129, 1000])
@pytest.mark.parametrize(("batch", "heads", "shared"), [(1, 1, 4), (1, 2, 7), (3, 2, 1), (2, 1, 3)])
def test_attention(batch: int, heads: int, shared: int, count: int, dim: int, threads: int) -> None:
    """Keys and values are cut from one cache with room for more."""
    cache = numbers(batch, 2 * heads, count + 9, dim)
    keys, values = cache[:, :heads, :count], cache[:, heads:, :count]
    q = numbers(batch, heads, shared, dim, seed=1) * 2
    q[0, 0, 0] *= 100  # one key takes all
    wanted = functional.scaled_dot_product_attention(q.double(), keys.double(), values.double(), scale=0.3)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert row_ops.can_attend(q, keys)
        assert torch.allclose(row_ops.attend(q, keys, values, 0.3).double(), wanted, rtol=1e-4, atol=1e-5)
        halves = torch.empty(batch, heads * shared * dim, dtype=torch.bfloat16)
        assert row_ops.attend(q, keys, values, 0.3, halves) is halves
        assert torch.allclose(halves.view(wanted.shape).double(), wanted, rtol=2**-8, atol=1e-5)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n", [1, 15, 16, 33])
def test_nothing_beyond_the_rows_is_read(n: int) -> None:
    x, weight, both = numbers(2, n), numbers(n, seed=1), numbers(2, 2 * n)
    normed = row_ops.norm_rows(before_a_wall(x), before_a_wall(weight), 1e-6, before_a_wall(x))
    assert torch.equal(normed, row_ops.norm_rows(x, weight, 1e-6))
    gated = row_ops.gate_rows(before_a_wall(both), before_a_wall(x), gelu=True)
    assert torch.equal(gated, row_ops.gate_rows(both, None, gelu=True))
    cache, q = numbers(1, 2, 33, 32), numbers(1, 1, 3, 32)
    walled = before_a_wall(cache)
    looked = row_ops.attend(before_a_wall(q), walled[:, :1], walled[:, 1:], 1.0)
    assert torch.equal(looked, row_ops.attend(q, cache[:, :1], cache[:, 1:], 1.0))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("count", [1, 15, 16, 16383, 16385, 100_003])
def test_every_number_is_read_once(count: int, threads: int) -> None:
    """Whole numbers whose sums are exact, each of another size: what is left out or read twice shows."""
    x = torch.arange(1, count + 1, dtype=torch.float32) % 97
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert row_ops.sum_numbers(before_a_wall(x)) == sum(i % 97 for i in range(1, count + 1))
    finally:
        torch.set_num_threads(before)


def test_a_sum_of_other_numbers_is_left_to_torch() -> None:
    assert row_ops.sum_numbers(torch.arange(5)) == 10.0
    assert row_ops.sum_numbers(numbers(8, 4)[:, :2] * 0 + 1) == 16.0
    assert row_ops.sum_numbers(torch.empty(0)) == 0.0


def test_what_is_no_number_stays_none() -> None:
    x, cache = numbers(1, 40), numbers(1, 2, 50, 32)
    x[0, 3] = torch.nan
    assert row_ops.norm_rows(x, torch.ones(40), 1e-6).isnan().all()
    assert row_ops.gate_rows(x, None, gelu=True)[0, 3].isnan()
    cache[0, 0, 40, 5] = torch.nan
    assert row_ops.attend(numbers(1, 1, 2, 32), cache[:, :1], cache[:, 1:], 1.0).isnan().all()


def test_other_rows_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(4, 32)
    assert row_ops.can_compute(x)
    assert not row_ops.can_compute(x[:, :16])
    assert not row_ops.can_compute(x.bfloat16())
    assert not row_ops.can_compute(x.to("meta"))
    assert not row_ops.can_compute(torch.empty(0, 32))
    q, keys = numbers(1, 1, 2, 24), numbers(1, 1, 8, 24)
    assert not row_ops.can_attend(q, keys)  # no whole vectors
    assert not row_ops.can_attend(numbers(1, 1, 2, 32), numbers(1, 1, 8, 64)[..., :32])
    monkeypatch.setattr(row_ops, "list_kinds", tuple)
    assert not row_ops.can_compute(x)
