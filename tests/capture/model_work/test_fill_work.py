"""The work of kernels without shapes, from the config of their model, compared with figures of others."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.classify.step_annotations import AttentionSums
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.load_runs import load
from capture.model_work.fill_work import fill_model_work
from capture.model_work.model_config import NOTES_KEY, ConfigChoice, DecoderConfig, parse_config
from capture.model_work.role_work import CHOICE, Sharding, StepTokens, count_attention, estimate_role
from capture.record.process_recording import CONFIG_KEYS, read_config_sizes
from capture.run import Run, build_run
from tests.conftest import shared

QWEN3_8B = {
    "model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
    "torch_dtype": "bfloat16", "sliding_window": None, "use_sliding_window": False,
}  # fmt: skip
GPT_OSS_20B = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
    "num_local_experts": 32, "num_experts_per_tok": 4, "torch_dtype": "bfloat16", "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
MIB = 1 << 20
STEP = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk20sqsq2sqsk20)"


def build_config(**more: Any) -> DecoderConfig:
    config = parse_config({**QWEN3_8B, **more}, "config.json")
    assert config
    return config


def build_served_run(layers: int = 36, **meta: Any) -> Run:
    """Build a run of one step of vLLM whose kernels have ops and layers, but no work."""
    kernels = [("qkv", "attn.qkv", "matmul", n, 30) for n in range(layers)]
    kernels += [("split", "attn.core", "attention", 0, 30), ("reduce", "attn.core", "attention", 0, 10)]
    kernels += [("pad", "attn.out", "copy", 0, 5), ("head", "lm_head", "matmul", None, 90)]
    names, ops, categories, numbers, durations = zip(*kernels, strict=True)
    frame = pl.DataFrame(
        {
            "kind": ["step", *["kernel"] * len(kernels)],
            "name": [STEP, *names],
            "t": range(len(kernels) + 1),
            "dur": [9999, *durations],
            "step": [1] * (len(kernels) + 1),
            "layer": [None, *numbers],
            "op": [None, *ops],
            "category": [None, *categories],
            "phase": ["decode"] * (len(kernels) + 1),
            "lens": ["wall", *["gpu"] * len(kernels)],
            "track": ["cpu", *["gpu0/7"] * len(kernels)],
            "tokens": [2, *[None] * len(kernels)],
            "context": [10, *[None] * len(kernels)],
            "batch": [2, *[None] * len(kernels)],
        }
    )
    return build_run("a", meta, frame, Log(), enriched=True)


def write_config(folder: Path, **more: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**QWEN3_8B, **more}))
    return path


def test_kernels_get_the_work_of_their_roles_and_those_of_one_role_share_it(tmp_path: Path) -> None:
    choice = ConfigChoice(str(write_config(tmp_path)))
    (run,) = fill_model_work([build_served_run()], None, choice)
    rows = {row["name"]: row for row in run.events.iter_rows(named=True)}
    assert rows["qkv"]["flops"] == 2 * 2 * 6144 * 4096
    assert rows["qkv"]["bytes"] == 2 * (2 * 4096 + 6144 * 4096 + 2 * 6144)
    assert (rows["qkv"]["shape"], rows["qkv"]["dtype"]) == ("m=2 n=6144 k=4096", "bf16")
    pairs, moved = 4 * 32 * 128 * 20, 2 * (2 * 2 * 32 * 128 + 2 * 20 * 8 * 128)
    assert (rows["split"]["flops"], rows["reduce"]["flops"]) == (pairs * 0.75, pairs * 0.25)
    assert rows["split"]["bytes"] + rows["reduce"]["bytes"] == moved
    assert rows["head"]["shape"] == "m=2 n=151936 k=4096" and rows["pad"]["flops"] is None
    assert any("36 layers" in note and "36 blocks" in note for note in run.meta[NOTES_KEY])
    assert any("assumed" in note and "--tp 1" in note for note in run.meta[NOTES_KEY])


def test_work_that_the_source_reports_stays(tmp_path: Path) -> None:
    served = build_served_run()
    is_first = (pl.col("op") == "attn.qkv") & (pl.col("layer") == 0)
    own = served.with_events(served.events.with_columns(flops=pl.when(is_first).then(7.0)))
    (run,) = fill_model_work([own], None, ConfigChoice(str(write_config(tmp_path))))
    flops = run.events.filter(pl.col("op") == "attn.qkv")["flops"].to_list()
    assert flops == [7.0, *[2 * 2 * 6144 * 4096] * 35]


def test_a_config_of_another_model_is_refused_and_said_so(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    for blocks, choice in ((12, ConfigChoice()), (37, ConfigChoice()), (37, ConfigChoice(str(path)))):
        (run,) = fill_model_work([build_served_run(blocks)], tmp_path / "a.json", choice)
        assert not run.has("flops") and any(f"{blocks} blocks" in note for note in run.meta[NOTES_KEY])
    (part,) = fill_model_work([build_served_run(12)], None, ConfigChoice(str(path)))  # of a pipeline
    assert part.has("flops")
    (none,) = fill_model_work([build_served_run()], tmp_path / "a.json", ConfigChoice("none"))
    assert not none.has("flops") and NOTES_KEY not in none.meta


def test_a_document_beside_the_trace_that_is_no_config_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"port": 8000}')
    (run,) = fill_model_work([build_served_run()], tmp_path / "a.json", ConfigChoice())
    assert NOTES_KEY not in run.meta
    with pytest.raises(UnreadableError):
        fill_model_work([build_served_run()], None, ConfigChoice(str(tmp_path / "config.json")))


def test_ranks_share_heads_inner_sizes_and_experts() -> None:
    step = StepTokens(4, 4)
    dense = build_config()
    shapes = {
        "attn.qkv": "m=4 n=1536 k=4096", "attn.out": "m=4 n=4096 k=1024", "mlp.gate_up": "m=4 n=6144 k=4096",
        "mlp.down": "m=4 n=4096 k=3072", "lm_head": "m=4 n=37984 k=4096",
    }  # fmt: skip
    for role, shape in shapes.items():
        work = estimate_role(dense, Sharding(tp=4), role, 0, step)
        assert work and work.shape == shape
    mixed = build_config(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64)
    alone, by_tp, by_ep = (
        estimate_role(mixed, Sharding(tp, ep), "moe.experts", 0, step) for tp, ep in ((1, 1), (4, 1), (4, 4))
    )
    assert alone and by_tp and by_ep and alone.flops == 2 * 4 * 2 * 3 * 64 * 4096
    assert by_tp.flops == by_ep.flops == alone.flops / 4
    assert by_ep.bytes < alone.bytes / 2
    assert estimate_role(mixed, Sharding(), "mlp.gate_up", 0, step) is None


def test_latent_attention_reads_one_vector_per_token_for_all_heads() -> None:
    """By hand, with the sizes of DeepSeek V3: 128 heads, 512 + 64 numbers cached per token."""
    latent = build_config(num_attention_heads=128, num_key_value_heads=128, hidden_size=7168,
                          kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128,
                          v_head_dim=128)  # fmt: skip
    decode = StepTokens(4, 4, decode=AttentionSums(4, 4, 4000, 4, 4000))
    work = estimate_role(latent, Sharding(tp=8), "attn.core", 0, decode)
    assert work and work.flops == 2 * 16 * 4000 * (576 + 512)
    assert work.bytes == 2 * (4000 * 576 + 4 * 16 * (576 + 512))
    prefill = StepTokens(100, 1, prefill=AttentionSums(1, 100, 100, 10_000, 10_000))
    work = estimate_role(latent, Sharding(tp=8), "attn.core", 0, prefill)
    assert work and work.flops == 2 * 16 * 5000 * (192 + 128)
    out = estimate_role(latent, Sharding(tp=8), "attn.out", 0, decode)
    assert out and out.shape == "m=4 n=7168 k=2048"
    assert estimate_role(latent, Sharding(tp=8), "attn.qkv", 0, decode) is None


def test_what_the_config_does_not_tell_has_no_work() -> None:
    step = StepTokens(4, 4, decode=AttentionSums(4, 4, 40, 4, 40))
    latent = build_config(kv_lora_rank=512)
    unknown = build_config(quantization_config={"quant_method": "of tomorrow"})
    for role in ("attn.qkv", "attn.core", "attn.out"):
        assert estimate_role(latent, Sharding(), role, 0, step) is None
    assert estimate_role(unknown, Sharding(), "mlp.down", 0, step) is None
    assert estimate_role(build_config(), Sharding(), "attn.core", 0, StepTokens(4, 4)) is None
    assert (
        estimate_role(
            build_config(sliding_window=8, use_sliding_window=True), Sharding(), "attn.core", 0, step
        )
        is None
    )


@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(1, 9, 4), (6, 6, 4), (3, 9, 4), (3, 5, 4), (2, 3, 8)]
)
def test_a_window_counts_the_pairs_that_its_mask_lets_through(queries: int, keys: int, window: int) -> None:
    first = keys - queries
    mask = [[first + q - window < k <= first + q for k in range(keys)] for q in range(queries)]
    sums = AttentionSums(1, queries, keys, queries**2, queries * keys)
    pairs, read = count_attention(sums, window, is_causal=True)
    exact = sum(map(sum, mask))
    assert abs(pairs - exact) <= queries / 2  # the causal triangle is counted as half of its square
    assert read == sum(map(any, zip(*mask, strict=True)))


def read_reference(folder: Path, file: str, *columns: str) -> list[tuple[Any, ...]]:
    with (folder / file).open() as text:
        return [tuple(row[c] for c in columns) for row in csv.DictReader(text)]


def load_with_config(folder: Path, config: dict[str, Any], tmp_path: Path) -> Run:
    """Load the trace of a sample with a config alone, without its capture."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    choice = ConfigChoice(str(tmp_path / "config.json"))
    (run,) = load(folder / "execution.json.gz", cache=False, capture="none", config=choice)
    return run


@pytest.mark.parametrize(
    ("sample", "config"), [("sglang_qwen3_8b_decode", QWEN3_8B), ("vllm_gptoss_decode", GPT_OSS_20B)]
)
def test_the_config_alone_gives_what_another_tool_counts_of_the_capture(
    sample: str, config: dict[str, Any], tmp_path: Path
) -> None:
    folder = shared(f"samples/serving/{sample}")
    run = load_with_config(folder, config, tmp_path)
    sums = run.events.filter(pl.col("layer").is_not_null() | (pl.col("op") == "lm_head"))
    sums = sums.drop_nulls("flops").group_by("layer", "op").agg(pl.col("flops", "bytes").sum())
    works = [(flops, moved) for flops, moved in sums.select("flops", "bytes").iter_rows()]
    figures = ("GFLOPS_first", "Data Moved (MB)_first")
    products = read_reference(folder, "GEMM.csv", *figures)
    attention = [
        row for row in read_reference(folder, "InferenceAttention_fwd.csv", *figures) if float(row[0])
    ]
    for gflops, mib in products + attention:
        near = [w for w in works if w[0] == pytest.approx(float(gflops) * 1e9, rel=0.01)]
        assert any(w[1] == pytest.approx(float(mib) * MIB, rel=0.01) for w in near), (gflops, mib)


@pytest.mark.parametrize(
    ("sample", "config"), [("sglang_qwen3_8b_decode", QWEN3_8B), ("vllm_gptoss_decode", GPT_OSS_20B)]
)
def test_moves_from_the_config_alone_are_those_of_the_reference(
    sample: str, config: dict[str, Any], tmp_path: Path
) -> None:
    folder = shared(f"samples/serving/{sample}")
    run = load_with_config(folder, config, tmp_path)
    kernels = run.events.filter(pl.col("kind") == "kernel")
    known = kernels.drop_nulls("bytes")["dur"].sum()
    assert known > 0.95 * kernels["dur"].sum()
    tables = {"norm": "RMSNorm_fwd.csv", "attn.rope": "RoPE_fwd.csv"}
    for op, file in tables.items():
        if (folder / file).exists():
            rows = read_reference(folder, file, "Data Moved (MB)_first", "name_count")
            expected = sum(float(mib) * MIB * int(count) for mib, count in rows)
            assert kernels.filter(pl.col("op") == op)["bytes"].sum() == pytest.approx(expected, rel=0.01)


def test_moves_by_hand(tmp_path: Path) -> None:
    """Two tokens of 4096 numbers: norms of heads lie between products and attention, one adds a residual."""
    kernels = [
        ("rms", "norm", "norm", 2 * 2 * 4096 * 2 + 4096 * 2), ("qkv", "attn.qkv", "matmul", None),
        ("rms_q", "norm", "norm", 2 * 2 * (32 + 8) * 128 * 2 / 2),
        ("rms_k", "norm", "norm", 2 * 2 * (32 + 8) * 128 * 2 / 2),
        ("rope", "attn.rope", "elementwise", 2 * 2 * (32 + 8) * 128 * 2),
        ("store", "attn.kv", "copy", 4 * 2 * 8 * 128 * 2), ("attend", "attn.core", "attention", None),
        ("vllm::fused_add_rms_norm_kernel", "norm", "norm", 4 * 2 * 4096 * 2 + 4096 * 2),
        ("silu_and_mul", "mlp.act", "elementwise", 3 * 2 * 12288 * 2), ("move", "mlp.act", "copy", 0),
    ]  # fmt: skip
    names, ops, categories, moved = zip(*kernels, strict=True)
    step = build_served_run().events.head(1)
    frame = pl.DataFrame(
        {"kind": ["kernel"] * 10, "name": names, "op": ops, "category": categories, "t": range(1, 11),
         "dur": [5] * 10, "step": [1] * 10, "layer": [35] * 10, "lens": ["gpu"] * 10}
    )  # fmt: skip
    texts = pl.col("kind", "name", "op", "category", "phase", "lens", "track").cast(pl.String)
    events = pl.concat([step.with_columns(texts), frame], how="diagonal_relaxed")
    (run,) = fill_model_work(
        [build_run("a", {}, events, Log(), enriched=True)], None, ConfigChoice(str(write_config(tmp_path)))
    )
    sums = run.events.filter(pl.col("kind") == "kernel").sort("t")["bytes"].to_list()
    assert [a for a, b in zip(sums, moved, strict=True) if b is not None] == [
        b or None for b in moved if b is not None
    ]
    small = {"quant_method": "fp8"}
    quantised = ConfigChoice(str(write_config(tmp_path, quantization_config=small)))
    (run,) = fill_model_work([build_run("a", {}, events, Log(), enriched=True)], None, quantised)
    assert run.events.filter(pl.col("op") == "norm")["bytes"].null_count() == 4


def test_moves_of_experts_by_hand() -> None:
    mixed = build_config(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64)
    moved = {"moe.combine": (4 * 2 + 4) * 4096 * 2, "moe.sort": 4 * 2 * 8, CHOICE: 4 * 8 * 2}
    for role, expected in moved.items():
        work = estimate_role(mixed, Sharding(), role, 0, StepTokens(4, 4))
        assert work and work.bytes == expected
        assert estimate_role(build_config(), Sharding(), role, 0, StepTokens(4, 4)) is None
    assert estimate_role(mixed, Sharding(ep=2), "moe.combine", 0, StepTokens(4, 4)) is None


def test_experts_from_the_config_alone_are_those_of_the_reference_and_their_scales(tmp_path: Path) -> None:
    folder = shared("samples/serving/vllm_gptoss_decode")
    (tmp_path / "config.json").write_text(json.dumps(GPT_OSS_20B))
    choice = ConfigChoice(str(tmp_path / "config.json"))
    (run,) = load(folder / "execution.json.gz", cache=False, capture="none", config=choice)
    columns = ("name", "GFLOPS_first", "Data Moved (MB)_first")
    for name, gflops, mib in read_reference(folder, "MoE_unfused_fwd.csv", *columns):
        rows = run.events.filter(pl.col("op") == f"moe.experts.{name.rpartition('_')[2]}")
        assert rows.height == 24
        assert rows["flops"].to_list() == pytest.approx([float(gflops) * 1e9] * 24, rel=0.01)
        assert rows["bytes"].to_list() == pytest.approx([float(mib) * MIB * 17 / 16] * 24, rel=0.01)
    windows = run.events.filter(pl.col("op") == "attn.core", pl.col("layer") % 2 == 0)
    rates = windows.select(pl.col("bytes") / pl.col("dur"))["bytes"]
    assert max(rates) < 5300  # GB/s, the memory of its device


def test_config_of_the_recording_gives_work_by_itself(tmp_path: Path) -> None:
    (run,) = fill_model_work([build_served_run(config=QWEN3_8B)], None, ConfigChoice())
    (named,) = fill_model_work([build_served_run()], None, ConfigChoice(str(write_config(tmp_path))))
    work = ["name", "shape", "flops", "bytes"]
    assert run.events.select(work).equals(named.events.select(work)) and run.has("flops")
    assert any("36 layers in the recording" in note for note in run.meta[NOTES_KEY])
    for more in ({"config": {**QWEN3_8B, "num_hidden_layers": 12}}, {"config": "x"}, {"config": {"port": 1}}):
        (other,) = fill_model_work([build_served_run(**more)], None, ConfigChoice())
        assert not other.has("flops") and NOTES_KEY not in other.meta
    (none,) = fill_model_work([build_served_run(config=QWEN3_8B)], None, ConfigChoice("none"))
    assert not none.has("flops")


@pytest.mark.parametrize(
    ("phase", "shape", "tokens", "read"),
    [
        ("decode", None, 2, 2),
        ("prefill", "2x40", 2, 80),
        ("decode", "2x40", 2, 80),
        ("forward", "2x40", 2, 2),
    ],
)
def test_a_step_computes_what_it_reads_not_what_it_produces(
    phase: str, shape: str | None, tokens: int, read: int
) -> None:
    """A prompt of 40 tokens, or a text read again without a cache, produces one token a sequence."""
    run = build_served_run(config=QWEN3_8B)
    is_step = pl.col("kind") == "step"
    changed = {"name": "step", "phase": phase, "context": 40, "tokens": tokens}
    columns = [pl.when(is_step).then(pl.lit(v)).otherwise(c).alias(c) for c, v in changed.items()]
    shapes = pl.when(is_step).then(pl.lit(shape, pl.String)).alias("shape")
    frame = run.events.with_columns(pl.col("name", "phase").cast(pl.String)).with_columns(*columns, shapes)
    (filled,) = fill_model_work([build_run("r", run.meta, frame, Log())], None, ConfigChoice())
    products = filled.events.filter(pl.col("name").cast(pl.String) == "qkv")["shape"].cast(pl.String)
    assert products.str.extract(r"\bm=(\d+)").unique().to_list() == [str(read)]


class KeyLog(dict[str, Any]):
    """A document that keeps the keys which were looked up in it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.keys_read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_read.add(key)
        return super().get(key, default)


def test_recorder_writes_every_key_that_is_read() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}
    document = KeyLog({**sizes, "sliding_window": 4})
    assert parse_config(document, "a")
    # alternatives of a size are looked up until one is there
    for key in sizes:
        parse_config(rest := KeyLog({k: v for k, v in document.items() if k != key}), "a")
        document.keys_read |= rest.keys_read
    assert document.keys_read - set(CONFIG_KEYS) == {"text_config"}


def test_recorder_reads_the_config_of_a_model_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3Config(num_hidden_layers=2, hidden_size=64, num_attention_heads=8, head_dim=8)
    sizes = read_config_sizes(config)
    expected = parse_config(json.loads(config.to_json_string(use_diff=False)), "a")
    assert parse_config(json.loads(json.dumps(sizes)), "a") == expected and expected
    assert read_config_sizes(None) == read_config_sizes(object()) == {}


def test_products_around_linear_and_gated_attention_are_those_of_the_weights() -> None:
    """Against the weights of a model that transformers builds: each is multiplied with every token."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
    mixture = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    source = transformers.Qwen3NextConfig(
        num_hidden_layers=4, hidden_size=64, intermediate_size=96, vocab_size=128, linear_value_head_dim=16,
        shared_expert_intermediate_size=48, **heads, **linear, **mixture,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.Qwen3NextForCausalLM(source)
    config = parse_config(read_config_sizes(source), "a")
    assert config
    sizes = {name: weight.numel() for name, weight in model.named_parameters() if weight.ndim == 2}
    seen = set()
    for layer in range(4):
        place = f"model.layers.{layer}"
        for role, pattern in (
            ("ssm.in", rf"{place}\.linear_attn\.in_proj_(qkvz|ba)"),
            ("ssm.out", rf"{place}\.linear_attn\.out_proj"),
            ("attn.qkv", rf"{place}\.self_attn\.[qkv]_proj"),
            ("attn.out", rf"{place}\.self_attn\.o_proj"),
            ("moe.router", rf"{place}\.mlp\.gate\."),
            ("moe.shared", rf"{place}\.mlp\.shared_expert\.(gate|up|down)_proj"),
        ):
            weights = sum(n for name, n in sizes.items() if re.match(pattern, name))
            work = estimate_role(config, Sharding(), role, layer, StepTokens(5, 5))
            assert (work.flops if work else 0) == 2 * 5 * weights, (layer, role)
            seen.add((role, weights > 0))
    assert {(role, True) for role, _ in seen} <= seen and ("attn.qkv", False) in seen
    assert sorted(config.linear_layers) == [0, 1, 2]
    published = {key: v for key, v in read_config_sizes(source).items() if key != "layer_types"}
    by_interval = parse_config({**published, "full_attention_interval": 4}, "a")
    assert by_interval and by_interval.linear_layers == config.linear_layers
    one = AttentionSums(1, 1, 9, 1, 9)
    cores = [estimate_role(config, Sharding(), "attn.core", n, StepTokens(1, 1, None, one)) for n in range(4)]
    assert [core is not None for core in cores] == [False, False, False, True]
