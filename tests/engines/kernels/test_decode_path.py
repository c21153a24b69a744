"""A decode step made of nothing but the kernels' references gives the decoder's own logits."""

from collections.abc import Iterator

import pytest
import torch

from engines.decoder import Decoder
from engines.kernels import is_available, load_kernel
from engines.layer import DecoderLayer
from tests.engines import tiny

pytestmark = pytest.mark.skipif(not is_available(), reason="triton is not installed here")

STEPS = 5


def weight(layer: DecoderLayer, name: str) -> torch.Tensor:
    return layer.weights.matrices[name].weight


class ByReference:
    """The decoder's weights and a copy of its caches, and a step as the kernels would do it."""

    def __init__(self, model: Decoder) -> None:
        self._model, self._spec = model, model.spec
        self._caches = [c._kv.clone().chunk(2, 1) for c in model.caches]
        names = ("add_rmsnorm", "gemv", "qknorm_rope_append", "decode_attention", "gate_up_act")
        self._norm, self._gemv, self._append, self._attend, self._gate_up = map(load_kernel, names)

    def step(self, ids: torch.Tensor, at: int) -> torch.Tensor:
        """Logits [batch, vocab]. What a layer leaves is normed together with what it is added to."""
        position = torch.full((len(ids),), at, dtype=torch.int32)
        stream = self._model.table(ids[:, 0]) * self._model.embedding_scale
        layers, eps = self._model.layers, self._spec.eps
        h, stream = self._norm.reference(stream, layers[0].weights.norms["attn_norm"], eps)
        for number, layer in enumerate(layers):
            norms = layer.weights.norms
            product = self._attention(layer, number, h, position)
            h, stream = self._norm.reference(
                product, norms["ffn_norm"], eps, stream=stream, post=norms.get("post_attn_norm")
            )
            gelu = self._spec.activation == "gelu_tanh"
            wide = self._gate_up.reference(h, weight(layer, "gate_up"), gelu=gelu)
            last = number + 1 == len(layers)
            following = self._model.final if last else layers[number + 1].weights.norms["attn_norm"]
            h, stream = self._norm.reference(
                self._gemv.reference(wide, weight(layer, "down")), following, eps,
                stream=stream, post=norms.get("post_ffn_norm"),
            )  # fmt: skip
        return self._gemv.reference(h, self._model.head.weight)

    def _attention(
        self, layer: DecoderLayer, number: int, h: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        spec, (keys, values) = self._spec, self._caches[number]
        qkv = self._gemv.reference(h, weight(layer, "qkv"), layer.weights.bias)
        q = self._append.reference(
            qkv.view(len(h), -1, spec.head_dim), keys, values, position, layer.rotary.tables,
            layer.weights.norms.get("qk_norm"), spec.eps,
        )  # fmt: skip
        seen = self._attend.reference(q, keys, values, position, spec.attention_scale)
        return self._gemv.reference(seen.flatten(1), weight(layer, "o"))


def pairs(name: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits of the decoder and of the references, step by step, after a prefill beyond the window."""
    spec = tiny.SPECS[name]
    model = tiny.decoder(spec, tiny.weights(spec), batch=2)
    ids = torch.randint(spec.vocab, (2, 13 + STEPS), generator=torch.Generator().manual_seed(4))
    tiny.logits(model, ids[:, :13], 13)
    mine = ByReference(model)
    for at in range(13, 13 + STEPS):
        model.set_input(ids[:, at : at + 1], at)
        for op in model.ops:
            op()
        yield model.sampler.logits, mine.step(ids[:, at : at + 1], at)


@pytest.mark.parametrize("name", tiny.SPECS)
def test_references_are_the_decoder(name: str) -> None:
    with torch.inference_mode():
        for wanted, actual in pairs(name):
            assert (actual - wanted).norm() / wanted.norm() < 2e-6
            assert torch.equal(actual.argmax(-1), wanted.argmax(-1))
