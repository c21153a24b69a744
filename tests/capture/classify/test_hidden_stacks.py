"""Layers and roles out of the order of kernels alone, against the modules of the same traces."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from capture.classify.layer_inference import InferredLayers, KernelSequence, infer_layers
from capture.classify.layer_roles import assign_roles, map_role_to_op
from capture.classify.name_rules import has_model_position, infer_op_and_category
from capture.classify.pass_template import build_template
from capture.import_log import Log
from capture.infer_structure import fill_inferred_layers, infer_from_repetition
from capture.run import build_run
from tests.bench.hidden_stacks import judge
from tests.capture.classify import _recorded
from tests.capture.classify._recorded import Sequence
from tests.capture.classify._sequences import DENSE, HEAD, TAIL, codes

LAYER, ROLE = 0.99, 0.97  # shares of kernels, and of their time, that are right
WARM_UP = [
    "Memset (Device)",
    "cublasLt::splitKreduce_kernel",
    "void at::native::vectorized_elementwise_kernel<4>",
]


def infer(sequence: Sequence, stream: np.ndarray | None = None) -> InferredLayers:
    ids, names = codes(sequence.names)
    launch, _ = codes(sequence.keys)
    start = np.cumsum(sequence.duration.astype(np.int64))
    return infer_layers(KernelSequence(ids, names, start, sequence.duration, stream=stream, launch=launch))


def roles(blocks: InferredLayers) -> list[str | None]:
    return [blocks.roles[code] if code >= 0 else None for code in blocks.role.tolist()]


def assert_right(sequence: Sequence, layer: np.ndarray, right: np.ndarray) -> None:
    """Assert that enough kernels of the layers, and enough of their time, have their layer and their role."""
    inside = (sequence.layer >= 0) | (layer >= 0)
    told = np.array([role is not None for role in sequence.role]) & (sequence.layer >= 0)
    assert told.sum() > 0.7 * (sequence.layer >= 0).sum()
    for weight in (np.ones(len(layer)), sequence.duration):
        assert weight[inside & (layer == sequence.layer)].sum() >= LAYER * weight[inside].sum()
        assert weight[told & right].sum() >= ROLE * weight[told].sum()


def same(found: list[str | None], true: list[str | None]) -> np.ndarray:
    return np.array([a == b for a, b in zip(found, true, strict=True)])


def as_it_is(sequence: Sequence) -> tuple[Sequence, np.ndarray | None]:
    return sequence, None


def warmed_up(sequence: Sequence) -> tuple[Sequence, np.ndarray | None]:
    """Return the sequence behind 150 kernels of a warm-up."""
    extra = WARM_UP * 50
    return _with(sequence, [0] * len(extra), extra), None


def beside_copies(sequence: Sequence) -> tuple[Sequence, np.ndarray | None]:
    """Return the sequence with a copy on another stream beside every seventh kernel."""
    places = list(range(0, len(sequence.names), 7))
    mixed = _with(sequence, places, ["Memcpy HtoD (Pinned -> Device)"] * len(places))
    return mixed, np.array([13 if "Memcpy HtoD" in name else 7 for name in mixed.names])


def _with(sequence: Sequence, places: list[int], names: list[str]) -> Sequence:
    """Return the sequence with kernels that belong to no layer put in."""
    return replace(
        sequence,
        names=list(np.insert(np.array(sequence.names, dtype=object), places, names)),
        keys=list(np.insert(np.array(sequence.keys, dtype=object), places, "")),
        duration=np.insert(sequence.duration, places, 100),
        layer=np.insert(sequence.layer, places, -1),
        role=list(np.insert(np.array(sequence.role, dtype=object), places, None)),
        step=np.insert(sequence.step, places, 0),
    )


@pytest.mark.parametrize("disturbed", [as_it_is, warmed_up, beside_copies], ids=lambda f: f.__name__)
@pytest.mark.parametrize("architecture", _recorded.architectures())
def test_hidden_stacks(
    architecture: str, disturbed: Callable[[Sequence], tuple[Sequence, np.ndarray | None]]
) -> None:
    sequence, stream = disturbed(_recorded.recorded(architecture))
    blocks = infer(sequence, stream)
    layer = blocks.layer
    if stream is not None:  # copies run beside layers: whichever they are given is no mistake
        layer = np.where(stream == 13, -1, layer)
    assert_right(sequence, layer, same(roles(blocks), sequence.role))
    assert blocks.evidence.layers == sequence.layer.max() + 1
    assert blocks.evidence.passes == sequence.step.max()
    assert blocks.evidence.reason is None


def run_of(names: list[str], durations: np.ndarray) -> pl.DataFrame:
    """Return the events of a run of these kernels, one after the other."""
    duration = pl.Series("dur", durations).cast(pl.Int64)
    frame = pl.DataFrame({"name": names, "lens": "gpu", "track": "gpu0/stream7"})
    return build_run("run", {}, frame.with_columns(duration, t=duration.cum_sum() - duration), Log()).events


@pytest.mark.parametrize("architecture", _recorded.architectures())
def test_hidden_stacks_in_a_run(architecture: str) -> None:
    """A run of these kernels gets their layers and the ops of their roles; names of places stand."""
    sequence = _recorded.recorded(architecture)
    events, evidence = fill_inferred_layers(run_of(sequence.names, sequence.duration))
    assert evidence is not None
    by_name = [
        infer_op_and_category(name)[0] if has_model_position(name) else None for name in sequence.names
    ]
    true = [name or map_role_to_op(role) for name, role in zip(by_name, sequence.role, strict=True)]
    ops = events["op"].cast(pl.String).to_list()
    right = same(ops, true) | np.array(
        [(op or "").startswith(f"{t}.") for op, t in zip(ops, true, strict=True)]
    )
    assert_right(sequence, events["layer"].fill_null(-1).to_numpy(), right)


@pytest.mark.corpus
@pytest.mark.parametrize("architecture", ["llama", "deepseek_v3", "mamba"])
@pytest.mark.slow
def test_models_that_run_now_are_as_they_were_recorded(architecture: str) -> None:
    sequence = _recorded.of_processor(architecture)
    blocks = infer(sequence)
    assert_right(sequence, blocks.layer, same(roles(blocks), sequence.role))


@pytest.mark.parametrize("name", _recorded.GPU)
def test_the_recorded_kernels_of_gpus_are_those_of_the_traces(name: str) -> None:
    now, then = _recorded.of_gpu(_recorded.GPU[name]), _recorded.recorded(name)
    assert (now.names, now.role, now.layer.tolist()) == (then.names, then.role, then.layer.tolist())


@pytest.mark.parametrize("architecture", _recorded.architectures())
def test_kernels_in_no_order_get_no_layers(architecture: str) -> None:
    """The same kernels shuffled: what cannot be known is not guessed."""
    sequence = _recorded.recorded(architecture)
    order = np.random.default_rng(5).permutation(len(sequence.names))
    events, evidence = fill_inferred_layers(
        run_of([sequence.names[i] for i in order], sequence.duration[order])
    )
    assert evidence is None
    assert not {"layer", "step"} & set(events.columns)


def read_stack(architecture: str) -> pl.DataFrame:
    """Return kernels and their truth, as `python -m tests.bench.hidden_stacks … --write` wrote them."""
    table = pl.read_parquet(Path(__file__).with_name("stacks.parquet"))
    return table.filter(pl.col("architecture") == architecture).with_columns(
        pl.col("name", "ops").cast(pl.String), path=pl.lit("")
    )


@pytest.mark.parametrize(
    "architecture",
    ["t5", "whisper", "bart", "falcon_mamba", "nemotron_h", "nemotron", "zamba2", "siglip_vision_model",
     "vit", "wav2vec2", "modernbert", "olmo_hybrid", "deberta", "nllb-moe",
     "minimax", "megatron-bert", "gemma4_text", "laguna", "longt5", "bailing_hybrid", "kimi_linear",
     "xlm", "albert", "lara_mini",
     "openai_privacy_filter"],
)  # fmt: skip
def test_stacks_of_other_kinds(architecture: str) -> None:
    """Two stacks with cross attention, single mixers as layers, shared blocks, pooling heads, front ends.

    Also loops over the chunks of a prompt, masks between layers, one layer that runs six times, and 128
    products of experts in a row, beside convolutions in a third of the layers.
    """
    rows = read_stack(architecture)
    events, evidence = fill_inferred_layers(run_of(rows["name"].to_list(), rows["dur"].to_numpy()))
    assert evidence is not None
    result = judge(rows.hstack(events.select("layer", pl.col("op").cast(pl.String))))
    for right, _, wrong in (result.layer, result.role):
        assert right > 92 and wrong < 1, (result.layer, result.role, result.rows.most_common(5))


@pytest.mark.parametrize("architecture", ["bitnet", "ctrl", "marian", "mobilebert", "roberta", "ibert"])
def test_odd_stacks_are_unknown_rather_than_wrong(architecture: str) -> None:
    """Norms before outputs, scores of positions, norms after sums, four feed-forwards, a head with a GELU."""
    rows = read_stack(architecture)
    events, _ = fill_inferred_layers(run_of(rows["name"].to_list(), rows["dur"].to_numpy()))
    result = judge(rows.hstack(events.select("layer", pl.col("op").cast(pl.String))))
    for right, _, wrong in (result.layer, result.role):
        assert right > 85 and wrong < 1, (result.layer, result.role, result.rows.most_common(5))


@pytest.mark.parametrize(
    ("architecture", "least"),
    [("umt5", 60), ("led", 75), ("deepseek_v32", 75), ("zaya", 50), ("axk2", 80), ("beam", 85)],
)
def test_what_is_known_of_half_a_stack_is_right(architecture: str, least: float) -> None:
    """Biases of positions, windows of attention in many small kernels, a choice of keys, gates of norms."""
    rows = read_stack(architecture)
    events, _ = fill_inferred_layers(run_of(rows["name"].to_list(), rows["dur"].to_numpy()))
    result = judge(rows.hstack(events.select("layer", pl.col("op").cast(pl.String))))
    for right, _, wrong in (result.layer, result.role):
        assert right > least and wrong < 0.5, (result.layer, result.role, result.rows.most_common(5))


def test_a_conformer_is_unknown_with_its_reason() -> None:
    """Two halves of a feed-forward around attention and convolutions."""
    rows = read_stack("wav2vec2-conformer")
    _, evidence, reason = infer_from_repetition(run_of(rows["name"].to_list(), rows["dur"].to_numpy()))
    assert evidence is None and reason


def test_a_table_of_positions_in_unknown_layers_is_no_embedding() -> None:
    """Each layer of this Conformer looks up the distances of its keys."""
    rows = read_stack("wav2vec2-bert")
    events, evidence = fill_inferred_layers(run_of(rows["name"].to_list(), rows["dur"].to_numpy()))
    assert evidence is None
    tables = events.filter(pl.col("name") == "aten::embedding")
    assert tables.height == 24 and tables["op"].null_count() == 24
    assert (
        judge(rows.hstack(events.select(pl.lit(None).alias("layer"), pl.col("op").cast(pl.String)))).role[2]
        < 1
    )


def test_embeddings_of_passes_without_attention_stay_embeddings() -> None:
    names = ["aten::embedding", *["aten::native_layer_norm", "aten::mm", "aten::silu"] * 2] * 6
    events, evidence = fill_inferred_layers(run_of(names, np.full(len(names), 7)))
    assert evidence is None
    assert events.filter(pl.col("op").cast(pl.String) == "embed").height == 6


def test_attention_with_and_without_feed_forwards_has_no_layers() -> None:
    """Nothing says whether attention without a feed-forward is a layer: the reason is given."""
    pattern = [*DENSE[:8], *DENSE, *DENSE]
    names = [*HEAD, *pattern * 4, *TAIL]
    _, evidence, reason = infer_from_repetition(run_of(names, np.full(len(names), 7)))
    assert evidence is None
    assert "some have none" in (reason or "")


@pytest.mark.parametrize(
    ("before", "projections"),
    [("NMMNjMccNMM", 0), ("NMAMNMMM", 3)],
    ids=["a choice of keys", "a feed-forward first"],
)
def test_products_before_attention_are_projections_if_no_norm_parts_them(
    before: str, projections: int
) -> None:
    roles = assign_roles(f"{before}CMaNMAMa", (len(before), len(before) + 1), has_post_norm=False)
    assert roles[: len(before)].count("attn.qkv") == projections


def test_the_numbers_left_open_are_said_with_their_reason() -> None:
    layer = ["aten::native_layer_norm", *["aten::mm"] * 3, "aten::_scaled_dot_product_attention",
             "aten::mm", "aten::add", "aten::native_layer_norm", "aten::mm", "aten::gelu", "aten::mm",
             "aten::add"]  # fmt: skip
    names = ["aten::embedding", *layer * 2, "aten::native_layer_norm", "aten::mm", *layer * 6] * 3
    events, evidence = fill_inferred_layers(run_of(names, np.full(len(names), 7)))
    assert evidence is not None and "numbered anew" in (evidence.doubt or "")
    assert events["layer"].drop_nulls().unique().to_list() == [0, 1]


def test_convolutions_within_layers_that_attend_are_no_mixers() -> None:
    """Segformer has one in what attention reads, and one in its feed-forward."""
    layer = "NMVNMMCMaNMVAMa"
    symbols = "vN" + layer * 6 + "N"
    template = build_template(codes(symbols)[0], symbols, None)
    assert template.layers == 6
    roles = template.role[2 : 2 + len(layer)]
    assert roles[1] == roles[4] == roles[5] == "attn.qkv" and roles[7] == "attn.out"
    assert (roles[10], roles[13]) == ("mlp.up", "mlp.down")


def test_activations_of_convolutions_are_no_feed_forwards_in_unknown_layers() -> None:
    """ResNet has no feed-forward; that of its head keeps the op of its name."""
    block = ["aten::convolution", "aten::batch_norm", "aten::relu"]
    names = [*block, *block[:2], "aten::add", "aten::relu", *block * 2, "aten::addmm", "aten::gelu"]
    events, evidence = fill_inferred_layers(run_of(names, np.full(len(names), 7)))
    assert evidence is None
    ops = dict(zip(names, events["op"].cast(pl.String).to_list(), strict=True))
    assert (ops["aten::relu"], ops["aten::gelu"]) == (None, "mlp.act")


def test_reductions_before_attention_are_no_copies() -> None:
    """Hiera pools queries by their maximum."""
    symbols = "NMrxcCMaNMAMa"
    roles = assign_roles(symbols, (5, 6), has_post_norm=False)
    assert roles[2] is None and roles[3] == "attn.copy"


LAYER_OPS = [*["aten::mm"] * 3, "aten::_scaled_dot_product_attention", "aten::mm", "aten::add",
             "aten::native_layer_norm", "aten::mm", "aten::gelu", "aten::mm", "aten::add",
             "aten::native_layer_norm"]  # fmt: skip


def test_layers_alone_have_no_numbers() -> None:
    """Called without an embedding, the encoder of DETR is layers only: 24 of one pass or 6 of four."""
    names = LAYER_OPS * 24
    events, evidence = fill_inferred_layers(run_of(names, np.full(len(names), 7)))
    assert evidence is not None and "cannot be told apart" in (evidence.doubt or "")
    assert (
        events["layer"].null_count() == events.height and "mlp.up" in events["op"].cast(pl.String).to_list()
    )
    names = ["aten::embedding", *names, "aten::mm", "aten::argmax"]
    assert fill_inferred_layers(run_of(names, np.full(len(names), 7)))[0]["layer"].max() == 23


def test_work_before_a_feed_forward_behind_a_norm_of_its_own_has_no_role() -> None:
    """Deformable DETR samples a grid between self-attention and feed-forward."""
    symbols = "MMMCMaNMeMoMoMaNMAMaN"
    roles = assign_roles(symbols, (3, 4), has_post_norm=True)
    assert not {role for role in roles[7:14] if role} and roles[16:19] == ("mlp.up", "mlp.act", "mlp.down")
