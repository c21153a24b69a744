"""Sampling under Triton's interpreter: what can be drawn, how often, and from step to step."""

import pytest
import torch

from engines.kernels import sampling
from tests.engines.kernels.compare import DTYPES, rand


def drawn(
    logits: torch.Tensor, count: int, **options: float
) -> tuple[torch.Tensor, sampling.SamplingScratch]:
    """The tokens of so many steps, [steps, rows]; nothing is changed between them."""
    rows, vocab = logits.shape
    between, actual = sampling.allocate_scratch(rows, vocab, logits.device), []
    for _ in range(count):
        token = torch.full((rows,), -1, dtype=torch.int64)
        sampling.launch(logits, token, between, **options)
        actual.append(token)
    return torch.stack(actual), between


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 32 logits of which 8 survive, since the interpreter sorts slowly."""
    for name, value in (("BLOCK", 32), ("MAX_CANDIDATES", 8), ("BLOCKS_PER_GROUP", 4)):
        monkeypatch.setattr(sampling, name, value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [5, 1024, 2500])
def test_greedy(vocab: int, dtype: torch.dtype) -> None:
    logits = rand(3, vocab, dtype=dtype)
    logits[0, vocab // 2], logits[1, -1], logits[2] = 9.0, 9.0, -3.0
    tokens, _ = drawn(logits, 1)
    assert tokens[0].tolist() == [vocab // 2, vocab - 1, 0], "equal logits: the first"


@pytest.mark.slow
def test_plain_temperature_draws_by_the_softmax(small: None) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(150, 1)
    tokens, _ = drawn(logits, 2, temperature=0.8, seed=3)
    assert not torch.equal(tokens[0], tokens[1]), "another step, another draw"
    shares = tokens.flatten().bincount(minlength=4) / tokens.numel()
    wanted = (logits[0] / 0.8).softmax(-1)
    assert (shares - wanted).abs().max() < 4 * (0.25 / tokens.numel()) ** 0.5


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (0, 0.8), (5, 0.7), (1, 1.0), (8, 0.95)])
def test_only_what_survives_the_cut_is_drawn(small: None, top_k: int, top_p: float) -> None:
    """Of a vocabulary in nine blocks, three groups; the likeliest lie in different ones."""
    logits = rand(1, 261).clamp(max=2.0)
    logits[0, [3, 130, 259, 77, 206, 9]] = torch.tensor([9.0, 8.6, 8.3, 8.1, 7.9, 7.7])
    chances = sampling.compute_nucleus(logits, 1.1, top_k, top_p)[0]
    tokens, between = drawn(logits, 2, temperature=1.1, top_k=top_k, top_p=top_p, seed=1)
    assert (chances[tokens.flatten()] > 0).all()
    assert not between.cut.any()
    assert between.step.item() == 2


@pytest.mark.parametrize(("top_k", "top_p"), [(8, 0.3), (3, 1.0), (0, 0.2)])
def test_the_tail_is_struck_out(small: None, top_k: int, top_p: float) -> None:
    """Twelve tokens, nearly alike: of eight equal chances three begin below 0.3, of twelve below 0.2."""
    logits = torch.linspace(1e-3, 0.0, 12).repeat(10, 1)
    tokens, _ = drawn(logits, 1, temperature=1.0, top_k=top_k, top_p=top_p, seed=2)
    assert set(tokens.flatten().tolist()) == {0, 1, 2}


@pytest.mark.slow
def test_draws_from_few_are_draws_by_the_softmax(small: None) -> None:
    """Where all survive, the noise decides alike, token by token."""
    logits = rand(12, 8)
    few, _ = drawn(logits, 1, temperature=0.9, top_k=8, seed=7)
    plain, _ = drawn(logits, 1, temperature=0.9, seed=7)
    assert torch.equal(few, plain)
    assert len(few.unique()) > 3


@pytest.mark.slow
def test_a_flat_nucleus_beyond_what_survives_is_counted(small: None) -> None:
    tokens, between = drawn(torch.zeros(2, 70), 2, temperature=1.0, top_p=0.5)
    assert between.cut.tolist() == [2, 2]
    assert (tokens < 8).all(), "of equals the first survive"


@pytest.mark.slow
def test_blocks_of_full_size() -> None:
    logits = rand(1, 1100).clamp(max=2.0)
    logits[0, [700, 1099]] = 30.0
    tokens, _ = drawn(logits, 1, temperature=1.0, top_k=2, seed=5)
    assert tokens.item() in (700, 1099)


@pytest.mark.parametrize(
    ("temperature", "top_k", "vocab", "can"),
    [(0.0, 500, 262144, True), (1.0, 64, 262144, True), (1.0, 65, 1000, False), (1.0, 0, 262145, False)],
)
def test_what_is_supported_is_stated(temperature: float, top_k: int, vocab: int, can: bool) -> None:
    assert sampling.is_supported(temperature, top_k, vocab) is can


def test_the_reference_cuts_as_written() -> None:
    logits = torch.tensor([[0.1, 0.5, 0.3, 0.1]]).log()
    assert torch.allclose(
        sampling.compute_nucleus(logits, 1.0, 0, 0.6), torch.tensor([[0, 0.625, 0.375, 0]]).double()
    )
    assert torch.allclose(
        sampling.compute_nucleus(logits, 1.0, 1, 1.0), torch.tensor([[0.0, 1, 0, 0]]).double()
    )
