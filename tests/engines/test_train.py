"""Training steps, against autograd over the whole model and against AdamW written down a second time."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from capture.errors import EngineError
from engines.train import Trainer
from engines.training import OPTIMIZERS, SIZES, Size

TINY = Size("tiny", 16, 24, 2, 2, vocab=40, batch=2, context=7)
CPU = torch.device("cpu")


def step(trainer: Trainer, *phases: str) -> None:
    for phase in trainer.phases:
        if phase.name in phases:
            for op in phase.ops:
                op()


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Position by position, pair by pair."""
    _, _, context, dim = x.shape
    out = torch.empty_like(x)
    for position in range(context):
        for pair in range(dim // 2):
            angle = torch.tensor(position / 10_000 ** (2 * pair / dim))
            a, b = x[:, :, position, 2 * pair], x[:, :, position, 2 * pair + 1]
            out[:, :, position, pair] = a * angle.cos() - b * angle.sin()
            out[:, :, position, dim // 2 + pair] = a * angle.sin() + b * angle.cos()
    return out


def whole_loss(p: dict[str, torch.Tensor], size: Size, ids: torch.Tensor) -> torch.Tensor:
    """The model in one piece."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * p[name]

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(size.batch, size.context, size.heads, size.head_dim).transpose(1, 2)

    x = p["token_embeddings"][ids[:, :-1]]
    later = torch.full((size.context, size.context), -torch.inf).triu(1)
    for i in range(size.layers):
        h = norm(x, f"layers.{i}.ln1")
        q, k, v = (heads(h @ p[f"layers.{i}.attn.{n}_proj"].T) for n in "qkv")
        chances = (rotated(q) @ rotated(k).mT / size.head_dim**0.5 + later).softmax(-1)
        seen = (chances @ v).transpose(1, 2).reshape(x.shape)
        x = x + seen @ p[f"layers.{i}.attn.output_proj"].T
        h = norm(x, f"layers.{i}.ln2")
        gate, up = h @ p[f"layers.{i}.ffn.w1"].T, h @ p[f"layers.{i}.ffn.w3"].T
        x = x + (gate * gate.sigmoid() * up) @ p[f"layers.{i}.ffn.w2"].T
    logits = norm(x, "ln_final") @ p["lm_head"].T
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


@pytest.mark.parametrize("explicit", [True, False])
def test_ops_one_by_one_give_the_gradients_of_the_whole(explicit: bool) -> None:
    trainer = Trainer(replace(TINY, explicit=explicit), CPU)
    step(trainer, "forward", "backward")
    own = {name: p.detach().clone().requires_grad_() for name, p in trainer.parameters.items()}
    loss = whole_loss(own, TINY, trainer.ids)
    loss.backward()
    assert trainer.loss == pytest.approx(loss.item(), rel=1e-6)
    for name, parameter in trainer.parameters.items():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, own[name].grad, rtol=1e-4, atol=1e-7)


def test_nothing_of_the_forward_pass_outlives_the_backward_pass() -> None:
    trainer = Trainer(TINY, CPU)
    step(trainer, "forward", "backward")
    assert set(trainer.values) == {"loss"}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_adamw(optimizer: str) -> None:
    """Two steps of every parameter, written down once more. Torch decays first, the course last."""
    trainer = Trainer(TINY, CPU, optimizer=optimizer)
    wanted = {n: p.detach().double().clone() for n, p in trainer.parameters.items()}
    moments = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in wanted.items()}
    for number in (1, 2):
        step(trainer, "forward", "backward")
        for name, parameter in trainer.parameters.items():
            grad = parameter.grad.double()
            mean, square = (0.9 * moments[name][0] + 0.1 * grad, 0.999 * moments[name][1] + 0.001 * grad**2)
            moments[name] = (mean, square)
            if optimizer != "cs336":
                wanted[name] *= 1 - 1e-5
            corrected = mean / (1 - 0.9**number), square / (1 - 0.999**number)
            eps = 1e-8 / (1 - 0.999**number) ** 0.5 if optimizer == "cs336" else 1e-8
            wanted[name] -= 1e-3 * corrected[0] / (corrected[1].sqrt() + eps)
            if optimizer == "cs336":
                wanted[name] *= 1 - 1e-5
        step(trainer, "optimizer")
        assert all(p.grad is None for p in trainer.parameters.values())
    for name, parameter in trainer.parameters.items():
        torch.testing.assert_close(parameter.double(), wanted[name], rtol=2e-5, atol=2e-7)


def test_loss_falls() -> None:
    trainer, losses = Trainer(TINY, CPU, optimizer="fused"), []
    for _ in range(30):
        step(trainer, "forward", "backward", "optimizer")
        losses.append(trainer.loss)
    assert losses[-1] < losses[0] - 0.2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("explicit", [True, False])
def test_every_op_has_its_row(explicit: bool, optimizer: str) -> None:
    trainer = Trainer(replace(TINY, explicit=explicit), CPU, optimizer=optimizer)
    assert [phase.name for phase in trainer.phases] == ["forward", "backward", "optimizer"]
    for phase in trainer.phases:
        assert len(phase.rows) == len(phase.ops)
    forward, backward, _ = trainer.phases
    assert [r.name for r in backward.rows] == [r.name for r in reversed(forward.rows)]
    assert sum(r.name.startswith("softmax") for r in forward.rows) == (8 if explicit else 0)


@pytest.mark.parametrize(
    ("name", "millions", "states_gb", "short", "long"),
    [
        ("small", 128.6, 2.1, 126, 1145),
        ("medium", 423.2, 6.8, 429, 3795),
        ("large", 969.4, 15.5, 992, 8610),
        ("xl", 1998.2, 32.0, 2050, 17527),
        ("2.7B", 3406.8, 54.5, 3484, 29073),
    ],
)
def test_the_family(name: str, millions: float, states_gb: float, short: float, long: float) -> None:
    """Parameters, bytes of the optimizer's states, and GFLOP of a forward pass at 128 and 1024 positions."""
    from engines.training import forward_rows

    size = SIZES[name]
    assert round(size.parameters / 1e6, 1) == millions
    assert round(16 * size.parameters / 1e9, 1) == states_gb
    for context, wanted in ((128, short), (1024, long)):
        rows = forward_rows(replace(size, context=context))
        assert sum(r.flops[0] for r in rows if r.category == "matmul") / 1e9 == pytest.approx(
            wanted, rel=5e-3
        )


def test_sizes_that_do_not_fit_are_refused_with_the_sum() -> None:
    with pytest.raises(EngineError, match=r"54\.5 GB.*24\.0 GB are free.*--layers"):
        Trainer(SIZES["2.7B"], CPU, limit=24 * 10**9)
    part = SIZES["small"].with_layers(1)
    assert part.name == "small (1 of 12 layers)"
    assert part.bytes_needed() < SIZES["small"].bytes_needed()


def test_the_sum_of_what_is_kept_is_near_the_truth() -> None:
    """Bytes that the graph and the values hold after a forward pass, every storage counted once."""
    size = replace(TINY, context=64, vocab=100)
    trainer, held = Trainer(size, CPU), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        step(trainer, "forward")
    for tensor in trainer.values.values():
        keep(tensor)
    for tensor in (*trainer.parameters.values(), trainer.ids):
        held.pop(tensor.untyped_storage().data_ptr(), None)
    stated = size.bytes_needed() - 16 * size.parameters
    assert 0.9 < sum(held.values()) / stated < 1.1
