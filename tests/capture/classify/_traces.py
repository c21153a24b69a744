"""Make CPU traces of small random models whose true layers and roles are known from module paths."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.loaders.chrome.host_leaves import classify_cpu_op, select_working_ops

_SMALL: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "head_dim": 64,
}

# architecture: (config class, model class, what differs from the small configuration)
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 64}),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {"num_hidden_layers": 8, "head_dim": 64, "sliding_window": 16,
         "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) + ["sliding_attention"] * 2},
    ),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", {}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 256}),
    "phi": ("PhiConfig", "PhiForCausalLM", {}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
    "bert": ("BertConfig", "BertForMaskedLM", {}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", _MOE),
    "gpt_oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64, "sliding_window": 16},
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {"num_hidden_layers": 6, "num_key_value_heads": 4, "moe_intermediate_size": 128,
         "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
         "first_k_dense_replace": 2, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_rope_head_dim": 32,
         "qk_nope_head_dim": 32, "v_head_dim": 64},
    ),
    "mamba": ("MambaConfig", "MambaForCausalLM", {"state_size": 8}),
    "jamba": (
        "JambaConfig",
        "JambaForCausalLM",
        {"num_hidden_layers": 8, "use_mamba_kernels": False, "num_experts": 4, "mamba_d_state": 8,
         "mamba_dt_rank": 16},
    ),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM",
             {"num_hidden_layers": 6, "layer_types": ["conv", "conv", "full_attention"] * 2}),
    "qwen3_next": (
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        {**_MOE, "num_hidden_layers": 8, "shared_expert_intermediate_size": 128, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32},
    ),
}  # fmt: skip

# what follows the layer's number in a module path, with the function: the role of its work
_TRUTH = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"F:(apply_rotary|apply_multimodal|rotate)", "attn.rope"),
        (r"F:(update|repeat_kv|update_conv_state|update_recurrent_state)", "attn.kv"),
        (r"F:(sdpa_|eager_)", "attn.core"),
        (r"(post_attention_layernorm@post|attention\.output\.LayerNorm)", "attn.post_norm"),
        (r"(post_feedforward_layernorm|post_mlp|^output\.LayerNorm)", "mlp.post_norm"),
        (r"(pre_feedforward_layernorm|post_attention_layernorm|ln_2|ffn_norm|pre_ff_layernorm)", "mlp.norm"),
        (r"^(input_layernorm|ln_1|operator_norm|norm)\b", "attn.norm"),
        (r"(linear_attn|mixer)\.norm|mamba\.\w+_layernorm", "ssm.norm"),
        (r"(q_norm|k_norm|q_layernorm|k_layernorm|q_a_layernorm|kv_a_layernorm)", "attn.qk_norm"),
        (r"(linear_attn|mixer|mamba|^conv)\.(in_proj\w*|x_proj|dt_proj)", "ssm.in"),
        (r"(linear_attn|mixer|mamba|^conv)\.out_proj", "ssm.out"),
        (r"(linear_attn|mixer|mamba|^conv)", "ssm.core"),
        (r"(o_proj|attn\.c_proj|attention\.output\.dense|attention\.dense|self_attn\.(dense|out_proj))",
         "attn.out"),
        (r"(q_proj|k_proj|v_proj|qkv_proj|c_attn|query|\.key\b|\.value|query_key_value|q_[ab]_proj|kv_[ab]_proj)",
         "attn.qkv"),
        (r"shared_expert", "moe.shared"),
        (r"(mlp|feed_forward|block_sparse_moe)\.(gate|router)\b", "moe.router"),
        (r"(mlp|feed_forward|moe)\.experts\.act_fn", "moe.experts.act"),
        (r"(mlp|feed_forward|moe)\.experts", "moe.experts"),
        (r"gate_up_proj", "mlp.gate_up"),
        (r"(gate_proj|feed_forward\.w1)", "mlp.gate"),
        (r"(up_proj|feed_forward\.w3|c_fc|fc1|intermediate\.dense|dense_h_to_4h)", "mlp.up"),
        (r"(down_proj|feed_forward\.w2|mlp\.c_proj|fc2|^output\.dense|dense_4h_to_h)", "mlp.down"),
        (r"(mlp\.act|act_fn|activation_fn|^feed_forward|^mlp$|^mlp@)", "mlp.act"),
        (r"^(@|resid|output$|attention\.output$)", "residual"),
    )
)  # fmt: skip
_LAYER = re.compile(r"(?:layers|h|layer)\.(\d+)\.?(.*)")


@dataclass(frozen=True)
class Trace:
    """Working ops in order of start, each with its true layer (−1 outside) and role (None where unknown)."""

    names: list[str]
    keys: list[str]
    start: np.ndarray
    duration: np.ndarray
    layer: np.ndarray
    role: list[str | None]
    step: np.ndarray


@cache
def make(architecture: str) -> Trace:
    """Return the trace of one prompt and a few decode steps of a small random model."""
    torch = pytest.importorskip("torch")
    model = _model(architecture, torch)
    prompt = torch.randint(5, 500, (1, 24))
    with _one_thread(torch), torch.no_grad(), _marked_functions(model, torch):
        events = _profile(model, prompt, torch, generates=architecture != "bert")
    return _trace(events)


def export(architecture: str, file: Path, torch: Any) -> None:
    """Write the trace of one pass of a small random model, with its modules, as torch's profiler does."""
    model = _model(architecture, torch)
    prompt = torch.randint(5, 500, (1, 24))
    with _one_thread(torch), torch.no_grad(), _marked_functions(model, torch):
        model(prompt)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            with_stack=True,
            with_modules=True,
            experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
        ) as profiler:
            model(prompt)
    profiler.export_chrome_trace(str(file))


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _model(architecture: str, torch: Any) -> Any:
    """Return a small random model whose modules open ranges with their paths."""
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    config_name, model_name, changes = ARCHITECTURES[architecture]
    if not hasattr(transformers, model_name):
        pytest.skip(f"this transformers has no {model_name}")
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**{**_SMALL, **changes})
    model = getattr(transformers, model_name)(config).eval()
    mark_modules(model, torch)
    return model


def _profile(model: Any, prompt: Any, torch: Any, generates: bool) -> list[Any]:
    model(prompt)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        if generates:
            model.generate(prompt, max_new_tokens=3, min_new_tokens=3, do_sample=False, use_cache=True)
        else:
            for _ in range(3):
                model(prompt)
    return list(profiler.events())


def mark_modules(model: Any, torch: Any) -> None:
    """Open a range with the module's path around each module's forward."""
    for path, module in model.named_modules():
        ranges: list[Any] = []

        def enter(*_: Any, path: str = path, ranges: list[Any] = ranges) -> None:
            ranges.append(torch.profiler.record_function("M:" + path))
            ranges[-1].__enter__()

        def leave(*_: Any, ranges: list[Any] = ranges) -> None:
            ranges.pop().__exit__(None, None, None)

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)


@contextmanager
def _marked_functions(model: Any, torch: Any) -> Iterator[None]:
    """Open a range around the functions of attention that are no modules."""
    utilities = pytest.importorskip("transformers.modeling_utils")
    caches = pytest.importorskip("transformers.cache_utils")
    modeling = sys.modules[type(model).__module__]
    patch = pytest.MonkeyPatch()

    def marked(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with torch.profiler.record_function("F:" + function.__name__):
                return function(*args, **kwargs)

        return run

    for name in (
        "apply_rotary_pos_emb",
        "apply_rotary_pos_emb_interleave",
        "repeat_kv",
        "eager_attention_forward",
    ):
        if hasattr(modeling, name):
            patch.setattr(modeling, name, marked(getattr(modeling, name)))
    sdpa = utilities.ALL_ATTENTION_FUNCTIONS["sdpa"]
    patch.setitem(utilities.ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", marked(sdpa))
    patch.setattr(caches.DynamicCache, "update", marked(caches.DynamicCache.update))
    try:
        yield
    finally:
        patch.undo()


def _trace(events: list[Any]) -> Trace:
    rows = pl.DataFrame(
        {
            "at": range(len(events)),
            "thread": 0,
            "part": [classify_cpu_op(e.name) for e in events],
            "t": [round(e.time_range.start * 1000) for e in events],
            "dur": [round(e.time_range.elapsed_us() * 1000) for e in events],
        }
    )
    aten = [e.name.startswith("aten::") for e in events]
    chosen = [events[at] for at in select_working_ops(rows.filter(pl.Series(aten)))["at"]]
    where = [_place(event) for event in chosen]
    truths = [truth(*place) for place in where]
    post_norms = any("pre_feedforward" in path or "post_feedforward" in path for path, _ in where)
    roles = ["attn.post_norm" if post_norms and role == "mlp.norm" and "post_attention" in path else role
             for (_, role), (path, _) in zip(truths, where, strict=True)]  # fmt: skip
    roles = _experts(chosen, where, roles)
    roots = [_root(event) for event in chosen]
    step = np.cumsum([a is not b and b is not None for a, b in zip([None, *roots], roots, strict=False)])
    return Trace(
        [e.name for e in chosen],
        [str(e.input_shapes) for e in chosen],
        np.array([round(e.time_range.start * 1000) for e in chosen]),
        np.array([round(e.time_range.elapsed_us() * 1000) for e in chosen]),
        np.array([layer for layer, _ in truths]),
        roles,
        step,
    )


def _experts(chosen: list[Any], where: list[tuple[str, str]], roles: list[str | None]) -> list[str | None]:
    """Return the roles with those of experts told apart: half of the products of a call is the way up."""
    roles = list(roles)
    inside = [i for i, role in enumerate(roles) if role in ("moe.experts", "moe.experts.act")]
    calls: list[list[int]] = []
    for i in inside:
        if calls and i == calls[-1][-1] + 1:
            calls[-1].append(i)
        else:
            calls.append([i])
    for call in calls:
        products = [i for i in call if chosen[i].name in ("aten::mm", "aten::addmm", "aten::bmm")]
        half = len(products) // 2
        for i in call:
            if i in products:
                roles[i] = "moe.experts.up" if i < products[half] else "moe.experts.down"
            elif i < products[0]:
                roles[i] = "moe.dispatch"
            else:
                roles[i] = "moe.experts.act" if i < products[-1] else "moe.combine"
    for i, role in enumerate(roles):
        if role == "ssm.core" and chosen[i].name in ("aten::convolution", "aten::mm"):
            roles[i] = "ssm.conv" if chosen[i].name == "aten::convolution" else "ssm.in"
    for i, (path, _) in enumerate(where):
        if (
            roles[i] == "mlp.act"
            and path.endswith(".mlp")
            and any(r == "moe.router" for r in roles[max(0, i - 80) : i])
        ):
            roles[i] = "moe.combine"
    return roles


def _root(event: Any) -> Any:
    """Return the range of the whole model around the event; None outside."""
    root = None
    while event is not None:
        if event.name == "M:":
            root = event
        event = event.cpu_parent
    return root


def _place(event: Any) -> tuple[str, str]:
    """Return the module path and the marked function around an op."""
    function, node = "", event.cpu_parent
    while node is not None and not node.name.startswith("M:"):
        if node.name.startswith("F:"):
            function = node.name
        node = node.cpu_parent
    return (node.name[2:] if node else "-"), function


def truth(path: str, function: str) -> tuple[int, str | None]:
    match = _LAYER.search(path)
    if not match:
        return -1, None
    rest = match[2]
    text = function or rest or "@"
    if (
        function
        and function.startswith("F:update")
        and not rest.startswith(("self_attn", "attn", "attention"))
    ):
        text = rest
    return int(match[1]), next((role for pattern, role in _TRUTH if pattern.search(text)), None)
