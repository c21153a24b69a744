"""A whole step in kernels, under Triton's interpreter, against the decoder's own ops."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import GridExecutor

from engines import kernels
from engines.decoder import Decoder
from engines.fused.fused_step import DeviceState, FusedStep, explain_refusal, find_context_class
from engines.models.spec import Spec
from engines.token_sampling import GREEDY, SamplingOptions
from engines.weights import quantised_storage
from engines.weights.low_bit import QUANT_FORMATS
from engines.weights.matrix_storage import FP32
from engines.weights.quantised_storage import QuantisedStorage
from tests.engines import tiny

COMPUTING = ("aten.add", "aten.mul", "aten.mm", "aten.cat", "aten.gelu", "aten.silu", "aten._to_copy")
PROMPT, STEPS = 13, 2  # beyond the window of the tiny models


def few_layers(name: str) -> Spec:
    """The interpreter is slow: two layers show every joint, one of each kind."""
    spec = (tiny.SPECS | tiny.MORE)[name]
    return replace(spec, layers=2, windowed_layers=spec.windowed_layers[-2:][::-1])


@pytest.mark.parametrize(
    ("name", "batch"), [("gemma3", 1), ("gemma3", 8), ("llama", 8), ("phi3", 1), ("qwen2", 8), ("qwen3", 1)]
)
def test_the_fused_step_is_the_decoder(name: str, batch: int) -> None:
    spec = few_layers(name)
    plain, model = (tiny.decoder(spec, tiny.weights(spec), batch=batch) for _ in range(2))
    ids = torch.randint(spec.vocab, (batch, PROMPT + STEPS), generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        for decoder in (plain, model):
            tiny.logits(decoder, ids[:, :PROMPT], PROMPT)
        device_state = DeviceState(model)
        fused = FusedStep(model, device_state, GREEDY, find_context_class(PROMPT))
        assert len(fused.ops) == len(fused.plan)
        for at in range(PROMPT, PROMPT + STEPS):
            plain.set_input(ids[:, at : at + 1], at)
            device_state.set_input(ids[:, at], at)
            for op in plain.ops:
                op()
            for op in fused.ops:
                op()
            wanted = plain.sampler.logits
            assert (device_state.logits - wanted).norm() / wanted.norm() < 2e-6
            assert torch.equal(device_state.token, wanted.argmax(-1))
            assert device_state.position.tolist() == [at] * batch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form", "batch"),
    [("gemma3", "fp32", 1), ("gemma3", "q4f32_1", 8), ("qwen2", "q4f16_1", 1), ("qwen2", "q8_0", 8)],
)
def test_six_kernels_are_a_layer(name: str, batch: int, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the plan, and by what is launched; the first layer has the norm of what is embedded before it."""
    spec = replace(few_layers(name), hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=96, vocab=64)
    cpu, monkeys = torch.device("cpu"), monkeypatch.setattr
    monkeys(quantised_storage, "_make_cpu_matrix", quantised_storage.TritonMatrix)
    way = FP32 if form == "fp32" else QuantisedStorage(QUANT_FORMATS[form], cpu)
    with torch.inference_mode():
        model = Decoder(spec, tiny.Table(tiny.weights(spec)), way, cpu, batch=batch, capacity=64)
        fused = FusedStep(model, state := DeviceState(model), GREEDY, 512)
        state.set_input(torch.zeros(batch, dtype=torch.long), PROMPT)
        assert Counter(row.layer for row in fused.plan) == {None: 3, 0: 7, 1: 6}
        launched: list[object] = []
        real = GridExecutor.__call__
        monkeys(GridExecutor, "__call__", lambda *a, **b: launched.append(a[0]) or real(*a, **b))
        for row, op in zip(fused.plan, fused.ops, strict=True):
            launched.clear()
            with ops_of_torch() as others:
                op()
            if row.layer is not None:
                assert (len(launched), others) == (1, []), row.name


@contextmanager
def ops_of_torch() -> Iterator[list[str]]:
    """Fill a list with what torch itself computes meanwhile, outside the interpreter."""
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if str(op).startswith(COMPUTING):
                seen.append(str(op))
            return op(*args, **(kwargs or {}))

    with Watch():
        yield seen


@pytest.mark.slow
def test_steps_go_on_by_themselves() -> None:
    """Replayed without a word from the host, as a graph would be."""
    spec = few_layers("gemma3")
    plain, model = (tiny.decoder(spec, tiny.weights(spec)) for _ in range(2))
    prompt = torch.arange(PROMPT)[None]
    wanted, actual = [], []
    with torch.inference_mode():
        for decoder in (plain, model):
            tiny.logits(decoder, prompt, PROMPT)
        device_state = DeviceState(model)
        fused = FusedStep(model, device_state, GREEDY, 512)
        token = plain.sampler.logits.argmax(-1)
        device_state.set_input(token, PROMPT)
        for at in range(PROMPT, PROMPT + 3):
            plain.set_input(token[:, None], at)
            for op in plain.ops:
                op()
            token = plain.sampler.token
            wanted.append(int(token))
            for op in fused.ops:
                op()
            actual.append(int(device_state.token))
    assert actual == wanted


@pytest.mark.slow
@pytest.mark.parametrize("form", QUANT_FORMATS)
@pytest.mark.parametrize("batch", [1, 8])
def test_packed_weights_are_never_unpacked(form: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the decoder over the weights that the codes stand for."""
    spec = replace(
        few_layers("qwen2"), layers=1, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=96, vocab=64
    )
    table = tiny.weights(spec)
    cpu = torch.device("cpu")
    ids = torch.randint(64, (batch, PROMPT + 1), generator=torch.Generator().manual_seed(4))

    def decoder(product: type[quantised_storage.PackedProduct]) -> Decoder:
        monkeypatch.setattr(quantised_storage, "_make_cpu_matrix", product)
        way = QuantisedStorage(QUANT_FORMATS[form], cpu)
        return Decoder(spec, tiny.Table(table), way, cpu, batch=batch, capacity=64)

    with torch.inference_mode():
        plain, model = decoder(quantised_storage.UnpackedMatrix), decoder(quantised_storage.TritonMatrix)
        for each in (plain, model):
            tiny.logits(each, ids[:, :PROMPT], PROMPT)
        device_state = DeviceState(model)
        fused = FusedStep(model, device_state, GREEDY, 512)
        plain.set_input(ids[:, PROMPT:], PROMPT)
        device_state.set_input(ids[:, PROMPT], PROMPT)
        for op in (*plain.ops, *fused.ops):
            op()
    wanted = plain.sampler.logits
    assert (device_state.logits - wanted).norm() / wanted.norm() < 1e-5
    assert {row.name for row in fused.plan} >= {"dequant+qkv_proj", "dequant+ffn_gate_up+ffn_act"}


def test_what_the_kernels_cannot_draw_is_refused() -> None:
    spec = tiny.SPECS["gemma3"]
    assert explain_refusal(spec, GREEDY, torch.device("cpu")) == ""  # interpreted
    assert "64" in explain_refusal(spec, SamplingOptions(temperature=1.0, top_k=100), torch.device("cpu"))


def test_what_the_kernels_do_not_do_is_named() -> None:
    cpu = torch.device("cpu")
    assert (
        explain_refusal(tiny.MORE["qwen3_moe"], GREEDY, cpu) == "kernels do not support a mixture of experts"
    )
    assert "attention sinks" in explain_refusal(tiny.MORE["gpt_oss"], GREEDY, cpu)
    assert "layers without pre-norm" in explain_refusal(tiny.MORE["olmo2"], GREEDY, cpu)
    assert explain_refusal(tiny.MORE["phi3"], GREEDY, cpu) == ""


def test_what_triton_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernels, "_is_interpreted", lambda: False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    spec, gpu = tiny.SPECS["gemma3"], torch.device("cuda")
    assert explain_refusal(spec, GREEDY, gpu) == "Triton needs a C compiler to build kernel launchers"
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setattr(kernels.sysconfig, "get_path", lambda name, scheme: str(tmp_path))
    assert "Python.h" in explain_refusal(spec, GREEDY, gpu)
    (tmp_path / "Python.h").touch()
    assert explain_refusal(spec, GREEDY, gpu) == ""
