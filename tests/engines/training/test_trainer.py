"""Training steps, against the model written in one piece and against AdamW written down a second time."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from engines.training.model_sizes import OPTIMIZERS, ModelSize
from engines.training.trainer import Trainer
from engines.training.training_plan import plan_training_step

TINY = ModelSize("tiny", 16, 24, 2, 2, vocab=40, batch=2, context=7)
CPU = torch.device("cpu")


def gradients(trainer: Trainer) -> None:
    with trainer.enter_precision("forward"):
        for op in trainer.forward:
            op()
    trainer.backward()


def update(trainer: Trainer) -> None:
    for op in trainer.optimizer:
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


def whole_loss(p: dict[str, torch.Tensor], size: ModelSize, ids: torch.Tensor) -> torch.Tensor:
    """The model in one piece."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], p[name], 1e-5)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(size.batch, size.context, size.heads, size.head_dim).transpose(1, 2)

    x = functional.embedding(ids[:, :-1], p["token_embeddings"])
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
def test_the_gradients_are_those_of_the_model_in_one_piece(explicit: bool) -> None:
    trainer = Trainer(replace(TINY, has_explicit_attention=explicit), CPU)
    gradients(trainer)
    own = {name: p.detach().clone().requires_grad_() for name, p in trainer.parameters.items()}
    loss = whole_loss(own, TINY, trainer.ids)
    loss.backward()
    assert trainer.loss == pytest.approx(loss.item(), rel=1e-6)
    for name, parameter in trainer.parameters.items():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, own[name].grad, rtol=1e-4, atol=1e-7)


def test_only_the_graph_holds_what_no_op_reads_again() -> None:
    trainer = Trainer(TINY, CPU)
    for op in trainer.forward:
        op()
    assert set(trainer.values) == {"loss"}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_adamw(optimizer: str) -> None:
    """Two steps of every parameter, written down once more. Torch decays first, the course last."""
    trainer = Trainer(TINY, CPU, optimizer=optimizer)
    wanted = {n: p.detach().double().clone() for n, p in trainer.parameters.items()}
    moments = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in wanted.items()}
    for number in (1, 2):
        gradients(trainer)
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
        update(trainer)
        assert all(p.grad is None for p in trainer.parameters.values())
    for name, parameter in trainer.parameters.items():
        torch.testing.assert_close(parameter.double(), wanted[name], rtol=2e-5, atol=2e-7)


def test_loss_falls() -> None:
    trainer, losses = Trainer(TINY, CPU, optimizer="fused"), []
    for _ in range(30):
        gradients(trainer)
        losses.append(trainer.loss)
        update(trainer)
    assert losses[-1] < losses[0] - 0.2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("explicit", [True, False])
def test_every_op_has_its_row(explicit: bool, optimizer: str) -> None:
    size = replace(TINY, has_explicit_attention=explicit)
    trainer, rows = Trainer(size, CPU, optimizer=optimizer), plan_training_step(size, optimizer)
    assert len(rows.forward) == len(trainer.forward)
    assert len(rows.optimizer) == len(trainer.optimizer)
    assert [r.name for r in rows.backward] == [r.name for r in reversed(rows.forward)]
    every = (*rows.forward, *rows.backward, *rows.optimizer)
    assert len({row.scope for row in every}) == len(every)


def test_the_sum_of_what_is_kept_is_near_the_truth() -> None:
    """Bytes that the graph holds after a forward pass, every storage counted once."""
    for size in (
        replace(TINY, context=64, vocab=100),
        replace(TINY, context=64, vocab=100, has_explicit_attention=False),
    ):
        trainer = Trainer(size, CPU)
        held: dict[int, torch.Tensor] = {}

        def keep(tensor: torch.Tensor, held: dict[int, torch.Tensor] = held) -> torch.Tensor:
            held[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            for op in trainer.forward:
                op()
        tables = (*trainer.parameters.values(), trainer.ids, *trainer._rope, trainer._causal_mask)
        for tensor in tables:
            held.pop(tensor.untyped_storage().data_ptr(), None)
        total = sum(tensor.untyped_storage().nbytes() for tensor in held.values())
        assert 0.85 < total / size.count_saved_bytes() < 1.15


def steps(size: ModelSize, count: int) -> tuple[list[float], Trainer]:
    """The losses of so many steps."""
    trainer, losses = Trainer(size, CPU, seed=3), []
    for _ in range(count):
        gradients(trainer)
        losses.append(trainer.loss)
        update(trainer)
    return losses, trainer


def test_products_in_bf16_lose_little() -> None:
    size = ModelSize("small", 64, 128, 2, 4, vocab=200, batch=4, context=32)
    exact, _ = steps(size, 8)
    rounded, _ = steps(replace(size, is_mixed_precision=True), 8)
    assert exact[-1] < 0.9 * exact[0], "it learns"
    assert rounded == pytest.approx(exact, rel=0.01)
    assert rounded != exact


def test_only_products_are_in_bf16() -> None:
    trainer = Trainer(replace(TINY, is_mixed_precision=True), CPU)
    seen: dict[str, torch.dtype] = {}
    with trainer.enter_precision("forward"):
        for op in trainer.forward:
            op()
            seen |= {name: value.dtype for name, value in trainer.values.items()}
    assert {name for name, dtype in seen.items() if dtype == torch.bfloat16} >= {
        "q", "k", "v", "scores", "mixed", "out", "gate", "up", "act", "down", "logits",
    }  # fmt: skip
    stream = {f"x{i}" for i in range(2 * TINY.layers + 1)}
    assert {seen[name] for name in (*stream, "h", "g", "normed", "loss")} == {torch.float32}
    trainer.backward()
    held = (t for p in trainer.parameters.values() for t in (p, p.grad))
    assert {t.dtype for t in held if t is not None} == {torch.float32}


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("context", "explicit"), [(64, True), (256, True), (256, False)])
def test_what_a_forward_pass_keeps_is_foreseen(context: int, explicit: bool, mixed: bool) -> None:
    """Where it is not sure (softmax in fp32, on some devices), rather too much than too little."""
    size = ModelSize(
        "part",
        256,
        1024,
        2,
        4,
        vocab=2000,
        batch=2,
        context=context,
        has_explicit_attention=explicit,
        is_mixed_precision=mixed,
    )
    trainer, kept = Trainer(size, CPU), {}
    weights = {p.untyped_storage().data_ptr() for p in trainer.parameters.values()}

    def pack(saved: torch.Tensor) -> torch.Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved),
        trainer.enter_precision("forward"),
    ):
        for op in trainer.forward:
            op()
    assert 0.95 < size.count_saved_bytes() / sum(kept.values()) < (1.6 if mixed and explicit else 1.25)
