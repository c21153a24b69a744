"""What modules say of the kernels that run in them, on paths of real traces and of serving engines."""

import itertools

import polars as pl
import pytest

from capture.classify.name_rules import (
    MODULE_RULES,
    ModulePosition,
    ModuleRule,
    find_module_rule,
    find_path_rules,
    infer_scope_roles,
    parse_module_rules,
)
from capture.import_log import Log
from capture.run import Run, build_run
from tests.capture.classify import _module_paths, _traces

PLACES = {
    "": (2, 3, 1),
    "last": (3, 3, 1),
    "earlier": (1, 3, 1),
    "under one": (1, 3, 1),
    "under several": (1, 3, 8),
}


@pytest.mark.parametrize("rule", MODULE_RULES, ids=lambda rule: rule.id)
def test_the_example_of_a_rule_is_decided_by_it(rule: ModuleRule) -> None:
    number, siblings, parents = PLACES.get(rule.position) or (
        int(rule.position[0]),
        int(rule.position[-1]),
        1,
    )
    assert find_module_rule(ModulePosition(rule.example, number, siblings, parents)) is rule


def test_each_rule_has_an_id_of_its_own() -> None:
    assert len({rule.id for rule in MODULE_RULES}) == len(MODULE_RULES)


def test_a_table_with_a_wrong_line_is_refused() -> None:
    header = "id\tpath\tplace\tof\top\texample\n"
    assert parse_module_rules(header) == ()
    for line in ("a\tx\tfirst\tall\tnorm\tx", "a\tx\t\tnothing\tnorm\tx", "a\tx\t\tall"):
        with pytest.raises(ValueError, match=r".+"):
            parse_module_rules(header + line + "\n")
    with pytest.raises(ValueError, match="other columns"):
        parse_module_rules("id\tpath\n")


def agrees(op: str, truth: str) -> bool:
    """Tell whether an op is the true role or the part of the model that it belongs to."""
    return truth == op or truth.startswith(op + ".")


@pytest.mark.parametrize("architecture", _traces.ARCHITECTURES)
def test_classes_say_the_roles_that_attributes_have(architecture: str) -> None:
    """Classes with counters, as a real trace has them; roles from the attributes of the same modules."""
    recorded = [row for row in _module_paths.read() if row.architecture == architecture]
    roles = infer_scope_roles(row.path for row in recorded)
    assert len(recorded) >= 4
    assert not [(row, roles.get(row.path)) for row in recorded if row.path not in roles]
    assert not [(row, roles[row.path]) for row in recorded if not agrees(roles[row.path].op, row.role)]


@pytest.mark.parametrize("architecture", ["llama", pytest.param("deepseek_v3", marks=pytest.mark.slow)])
def test_the_recorded_paths_are_those_of_today(architecture: str) -> None:
    """This transformers and this torch write what the table holds, or at least what the rules read."""
    actual = list(dict.fromkeys(_module_paths.record(architecture)))
    roles = infer_scope_roles(row.path for row in actual)
    assert len(actual) >= 4
    assert all(agrees(roles[row.path].op, row.role) for row in actual if row.path in roles)
    assert sum(row.path in roles for row in actual) >= 0.97 * len(actual)


# modules as serving engines name them (vLLM, SGLang), and what runs in them
SERVING = {
    "LlamaDecoderLayer_3 / LlamaAttention_3 / QKVParallelLinear_3": "attn.qkv",
    "LlamaDecoderLayer_3 / LlamaAttention_3 / RowParallelLinear_6": "attn.out",
    "Qwen3DecoderLayer_3 / Qwen2MLP_3 / RowParallelLinear_7": "mlp.down",
    "Qwen3DecoderLayer_3 / Qwen2MLP_3 / MergedColumnParallelLinear_3": "mlp.gate_up",
    "Qwen3Attention_0 / RadixAttention_0": "attn.core",
    "LlamaForCausalLM_0 / LogitsProcessor_0": "lm_head",
    "LlamaForCausalLM_0 / ParallelLMHead_0": "lm_head",
    "DeepseekV2DecoderLayer_9 / DeepseekV2MoE_8 / ReplicatedLinear_9": "moe.router",
    "DeepseekV2DecoderLayer_9 / DeepseekV2MoE_8 / FusedMoE_8": "moe.experts",
    "DeepseekV2DecoderLayer_9 / DeepseekV2MoE_8 / DeepseekV2MLP_9 / RowParallelLinear_19": "moe.shared",
    "DeepseekV2DecoderLayer_9 / DeepseekV2AttentionMLA_9 / ReplicatedLinear_4": "attn.qkv",
    "MambaDecoderLayer_9 / MambaMixer2_9 / MergedColumnParallelLinear_4": "ssm.in",
    "MambaDecoderLayer_9 / MambaMixer2_9 / RowParallelLinear_4": "ssm.out",
    "GPTJBlock_0 / GPTJMLP_0 / ColumnParallelLinear_0": "mlp.up",
}
# attributes, as records of a scope for each module name them
ATTRIBUTES = {
    "model.layers.3.self_attn.q_proj": "attn.q",
    "model.layers.3.self_attn.o_proj": "attn.out",
    "bert.encoder.layer.3.attention.self.key": "attn.k",
    "bert.encoder.layer.3.attention.output.dense": "attn.out",
    "bert.encoder.layer.3.intermediate.dense": "mlp.up",
    "bert.encoder.layer.3.output.dense": "mlp.down",
    "transformer.h.3.attn.c_attn": "attn.qkv",
    "transformer.h.3.attn.c_proj": "attn.out",
    "transformer.h.3.mlp.c_proj": "mlp.down",
    "model.layers.3.mlp.gate": "moe.router",
    "model.layers.3.mlp.experts": "moe.experts",
    "model.layers.3.mlp.shared_experts.down_proj": "moe.shared",
    "backbone.layers.3.mixer.in_proj": "ssm.in",
    "lm_head": "lm_head",
    "L3.mlp.gate": "mlp.gate",
}


@pytest.mark.parametrize(("path", "op"), SERVING.items(), ids=SERVING)
def test_modules_of_serving_engines(path: str, op: str) -> None:
    marked = " / ".join(f"nn.Module: {module}" for module in path.split(" / "))
    assert {p: role.op for p, role in infer_scope_roles([path, marked]).items()} == {path: op, marked: op}


@pytest.mark.parametrize(("path", "op"), ATTRIBUTES.items(), ids=ATTRIBUTES)
def test_attributes(path: str, op: str) -> None:
    assert infer_scope_roles([path])[path].op == op


@pytest.mark.parametrize(
    "path",
    ["", " / ", "nn.Module: ", "autograd::engine::evaluate_function: AddmmBackward0 / AddmmBackward0",
     "## forward ## / DistributedDataParallel.forward", "aten::linear / aten::mm", "Thing_" + "9" * 4090,
     "nn.Module: X" * 4000, "/" * 9000, "_1" * 9000],
)  # fmt: skip
def test_other_scopes_say_nothing_and_harm_nothing(path: str) -> None:
    assert find_path_rules([path]) == {}


def test_the_fourth_product_of_an_attention_is_its_output_and_the_third_of_three_is_not() -> None:
    """HF: LlamaAttention holds q, k, v, o; BertSelfAttention holds q, k, v."""
    held = {"LlamaAttention": 4, "BertSelfAttention": 3}
    paths = [f"nn.Module: {a}_0 / nn.Module: Linear_{n}" for a, count in held.items() for n in range(count)]
    assert [rule.op for rule in find_path_rules(paths).values()] == [
        "attn.qkv", "attn.qkv", "attn.qkv", "attn.out", "attn.qkv", "attn.qkv", "attn.qkv",
    ]  # fmt: skip


def run_of(rows: list[tuple[str, str | None, str | None]]) -> Run:
    frame = pl.DataFrame(
        rows, schema=["name", "path", "op"], orient="row", schema_overrides={"op": pl.String}
    )
    return build_run("x", {}, frame.with_columns(dur=pl.lit(1)), Log())


def test_a_module_goes_before_a_name_that_is_no_place_and_after_one_that_is() -> None:
    mlp = "LlamaMLP / RowParallelLinear"
    rows: list[tuple[str, str | None, str | None]] = [
        ("ampere_bf16_gemm", mlp, None),  # the module says which product
        ("ampere_bf16_gemm", None, None),
        ("ncclDevKernel_AllReduce_Sum", mlp, None),  # the name says where it stands
        ("vectorized_elementwise_kernel", mlp, None),  # the module speaks of products only
        ("vectorized_elementwise_kernel", "LlamaRMSNorm", None),  # a piece of a norm
        ("ampere_bf16_gemm", mlp, "mine"),  # stated
    ]
    ops = run_of(rows).events["op"].cast(pl.String).to_list()
    assert ops[:3] == ["mlp.down", None, "comm.all_reduce"]
    assert ops[3] not in ("mlp.down", "norm")
    assert ops[4:] == ["norm", "mine"]


def test_no_two_rules_of_one_pattern_speak_of_one_place() -> None:
    for a, b in itertools.combinations(MODULE_RULES, 2):
        assert (a.pattern, a.position) != (b.pattern, b.position)
