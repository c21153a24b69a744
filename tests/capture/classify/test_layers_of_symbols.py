"""Layers and roles of sequences that are written as symbols: one letter a kernel."""

import re

import numpy as np
import pytest

from capture.classify.kernel_symbols import collapse_units, find_symbol
from capture.classify.layer_boundaries import find_mixers
from capture.classify.layer_inference import find_pass_bounds
from capture.classify.pass_template import build_template
from tests.capture.classify._sequences import codes


@pytest.mark.parametrize(
    ("batched", "layers"),
    [("NMAxbxbxaNMxMa", 8), ("NMsGbbAxba", 0), ("NMMbbAxba", 0)],
    ids=["linear attention", "experts", "gated"],
)
def test_batched_products_are_mixers_if_they_are_no_experts(batched: str, layers: int) -> None:
    symbols = "E" + f"{batched}NMAMaNMMMCMaNMAMa" * 4 + "NM"
    template = build_template(np.array([ord(s) for s in symbols], dtype=np.int64), symbols, None)
    assert template.layers == layers


def test_a_norm_of_two_embeddings_before_a_biased_head_is_of_either() -> None:
    """BERT as a decoder and GPT-2 run the same ops in the same order, but for the bias of the head."""
    layer = "NMMMCMaNMAMa"
    symbols = "EEa" + layer * 4 + "NM"
    ids, _ = codes(symbols)
    ids[-1] = 99  # the head's product
    plain = build_template(ids, symbols, None)
    assert [plain.layer.tolist().count(number) for number in range(4)] == [len(layer)] * 4
    is_open = build_template(ids, symbols, None, (), frozenset([99]))
    assert [is_open.layer.tolist().count(number) for number in range(4)] == [len(layer) - 1] * 4
    assert {is_open.layer[at] for at in range(3, 51, len(layer))} == {-1}


def test_masks_behind_open_norms_are_open() -> None:
    """XLM masks the embeddings, and what each layer returns, behind their norms."""
    layer = "NcxMMMCMaNMAMa"
    symbols = "EEa" + layer * 4 + "NcxM"
    ids, _ = codes(symbols)
    ids[-1] = 99  # the head's product
    template = build_template(ids, symbols, None, (), frozenset([99]))
    assert [template.layer.tolist().count(number) for number in range(4)] == [len(layer) - 3] * 4


def test_a_copy_of_the_first_layer_alone_is_of_none() -> None:
    """The vision tower of Qwen2.5-VL copies what its first norm reads; its output head has a bias."""
    layer = "prnxMMMCMaprnxMAMa"
    symbols = "v" + "c" + layer * 6 + "prnxM"
    ids, _ = codes(symbols)
    ids[1], ids[-1] = 98, 99  # the copy, and the head's product
    template = build_template(ids, symbols, None, (), frozenset([99]))
    assert [template.layer.tolist().count(number) for number in range(6)] == [len(layer)] * 6
    assert template.layer[1] == -1


@pytest.mark.parametrize(
    ("symbols", "merged"), [("pranxxcMMM", "NMMM"), ("pranxxcMcMcM", "NcMcMcM"), ("pranxxMcMcM", "NMcMcM")]
)
def test_a_copy_for_one_of_several_products_is_no_part_of_a_norm(symbols: str, merged: str) -> None:
    assert collapse_units(symbols).symbols == merged


def test_a_norm_after_three_embeddings_ends_layers_without_a_head() -> None:
    """Copies of a mask lie between the norm of the embeddings and the first layer of Splinter."""
    layer = "MMMCcMaNMAMaN"
    symbols = "EEaEaNco" + layer * 4
    template = build_template(codes(symbols)[0], symbols, None)
    assert [template.layer.tolist().count(number) for number in range(1, 4)] == [len(layer)] * 3
    assert template.layer[5] == -1


def test_norms_between_two_layers_alone_leave_the_numbers_open() -> None:
    """Dory runs its last layers again, behind norms of its own: nothing tells which layers those are."""
    layer = "NMMMCMaNMAMa"
    symbols = "E" + layer * 6 + "NaNa" + layer * 2 + "NM"
    template = build_template(codes(symbols)[0], symbols, None)
    assert template.layers == 0 and "between two of the layers alone" in (template.reason or "")
    even = symbols.replace("NaNa", "")
    assert build_template(codes(even)[0], even, None).layers == 8


@pytest.mark.parametrize("between", ["VN", "NM", "vAjNco"], ids=["patches", "merger", "characters"])
def test_work_between_two_layers_alone_leaves_the_numbers_behind_it_open(between: str) -> None:
    """A narrower stage of Segformer or Swin, or the next stack of CANINE: roles stay, numbers do not."""
    layer = "NMMMCMaNMAMa"
    symbols = "E" + layer * 2 + between + layer * 6 + "NM"
    template = build_template(codes(symbols)[0], symbols, None)
    behind = 1 + 2 * len(layer) + len(between)
    assert template.layer.tolist()[1:25] == [0] * len(layer) + [1] * len(layer)
    assert set(template.layer.tolist()[behind:]) == {-1} and template.role[behind + 8] == "mlp.up"
    assert template.role[25:behind] == (None,) * len(between)
    assert "may be numbered anew" in (template.doubt or "")
    even = symbols.replace(between, "", 1) if between != "NM" else "E" + layer * 8 + "NM"
    assert build_template(codes(even)[0], even, None).doubt is None


def test_a_product_of_one_layer_alone_leaves_the_numbers_behind_it_open() -> None:
    """Hiera projects the input of the first layer of a stage to its width."""
    layer = "NMxCMaNMAMa"
    symbols = "E" + layer * 3 + "NMMxCMaNMAMa" + layer * 4 + "NM"
    layers = build_template(codes(symbols)[0], symbols, None).layer.tolist()
    assert set(layers[1 : 1 + 3 * len(layer)]) == {0, 1, 2} and set(layers[1 + 3 * len(layer) :]) == {-1}


def test_layers_that_attend_twice_have_no_seam() -> None:
    layer = "MMMCMaNMMMCMaNMAMaN"
    symbols = "EEaN" + layer * 6 + "M"
    template = build_template(codes(symbols)[0], symbols, None)
    assert template.doubt is None and template.layers == 6


def test_a_convolution_without_a_product_before_it_is_no_state_space() -> None:
    """So ConvNeXt begins its layers; LFM2 projects the input of its convolutions."""
    assert find_mixers("vN" + "VNMAMxa" * 6 + "NM") == []
    assert len(find_mixers("E" + "NMxVxMaNMAMxMa" * 6 + "NM")) == 6


def test_interpolation_samples_no_token() -> None:
    assert find_symbol("aten::upsample_bilinear2d") != "Z"
    assert find_symbol("top_p_sampling_kernel") == "Z"


def test_a_pass_begins_with_as_many_convolutions_as_the_first_one() -> None:
    """A vision tower merges its patches by convolutions, and the next call embeds others."""
    layers = "NMMMCMaNMAMa" * 4
    symbols = f"vE{layers}vAvjMa" * 3
    ids, _ = codes(symbols)
    bounds = find_pass_bounds(ids, np.frombuffer(symbols.encode(), dtype=np.uint8), None)
    assert bounds.tolist() == [*(match.start() for match in re.finditer("vE", symbols)), len(symbols)]


def test_convolutions_as_mixers_beside_odd_work_have_no_layers() -> None:
    """A convolution there may embed patches, as in FocalNet, or mix positions."""
    layer = "NMxVxMaNMAMa"
    symbols = "E" + layer * 3 + "NM" + layer * 5 + "NM"
    template = build_template(codes(symbols)[0], symbols, None)
    assert template.layers == 0 and "numbered anew" in (template.reason or "")


def test_passes_without_an_embedding_begin_where_the_ends_of_all_run_again() -> None:
    """The backbone of CSM reads embedded inputs; each call prepares its positions."""
    symbols = ("acxjoxox" + "NMMMCMaNMAMxMa" * 4 + "N") * 3
    ids, _ = codes(symbols)
    bounds = find_pass_bounds(ids, np.frombuffer(symbols.encode(), dtype=np.uint8), None)
    assert bounds.tolist() == [*(match.start() for match in re.finditer("acxj", symbols)), len(symbols)]
    one = symbols[: bounds[1]]
    assert len(find_pass_bounds(ids[: len(one)], np.frombuffer(one.encode(), dtype=np.uint8), None)) == 2


@pytest.mark.parametrize("block", ["NvAvxa", "NMAMa"], ids=["convolutions", "products"])
def test_a_feed_forward_before_the_first_layer_leaves_the_numbers_open(block: str) -> None:
    """MobileCLIP mixes positions in its first layer by convolutions: attention begins in the second one."""
    symbols = "Ea" + block + "NMMMCMaNMAMa" * 6 + "NM"
    template = build_template(codes(symbols)[0], symbols, None)
    assert set(template.layer.tolist()) == {-1} and template.role.count("mlp.up") == 6
    assert "before the first" in (template.doubt or "")
    assert set(template.role[: len(block) + 2]) == {None}


def test_offset_norms_with_another_norm_behind_the_layers_have_their_sums() -> None:
    """VideoPrism adds 1 to the weights of its norms, but for that of the output's length."""
    symbols = "Exoaxj" + "aNMMMCcMaaNMAMa" * 6 + "aNxN"
    assert collapse_units(symbols).symbols == "Exoaxj" + "NMMMCcMaNMAMa" * 6 + "NxN"


def test_a_grid_that_is_sampled_chooses_no_token() -> None:
    assert find_symbol("aten::grid_sampler") != "Z"


def test_a_norm_of_patches_is_of_no_layer() -> None:
    """Swin merges patches between its stages, in part by the ops that embed them."""
    symbols = "vNc" + "NccMMMCMaNMAMa" * 2 + "jNMcNccMMMCMaNMAMa" + "NccMMMCMaNMAMa" * 5 + "N"
    layers = build_template(codes(symbols)[0], symbols, None).layer.tolist()
    assert layers[:3] == [-1, -1, -1] and layers[3] == 0


@pytest.mark.parametrize("between", ["N", "jjjo"], ids=["norm of a stack", "pooling"])
def test_a_norm_or_pooling_between_two_layers_alone_leaves_the_numbers_behind_it_open(between: str) -> None:
    """VideoPrism has a stack of frames behind that of images, Funnel shortens the sequence."""
    layer = "NMMMCMaNMAMa"
    symbols = "E" + layer * 4 + between + layer * 3 + "NM"
    layers = build_template(codes(symbols)[0], symbols, None).layer.tolist()
    assert set(layers[1 + 4 * len(layer) :]) == {-1}


def test_layers_with_a_norm_in_their_feed_forward_begin_with_a_norm() -> None:
    """Kosmos looks three tables up, as BERT does; no layer of BERT has such a norm."""
    layer = "NMMMxjjCMaNMANMa"
    symbols = "ExocrcaxcaEEaa" + layer * 6 + "NM"
    layers = build_template(codes(symbols)[0], symbols, None).layer.tolist()
    assert layers[14 : 14 + len(layer)] == [0] * len(layer)


def test_convolutions_in_a_row_are_no_mixers() -> None:
    symbols = "VNAVNA" + "VNVAVxaVNVAVxacMacMaoexoexCaMxaN" * 6 + "NrM"
    template = build_template(codes(symbols)[0], symbols, None)
    assert template.layers == 0 and "no mixers" in (template.reason or "")


def test_the_norm_of_two_embeddings_is_open_without_a_head() -> None:
    layer = "MMMCMaNMAMaN"
    symbols = "EEaN" + layer * 6
    layers = build_template(codes(symbols)[0], symbols, None).layer.tolist()
    assert {layers[at] for at in range(3, len(symbols), len(layer))} == {-1}
    assert layers[4:15] == [0] * 11


def test_a_feed_forward_behind_the_layers_has_no_head() -> None:
    symbols = "v" + "NMMMCMaNMAMa" * 4 + "NMAM"
    assert "lm_head" not in build_template(codes(symbols)[0], symbols, None).role


def test_a_feed_forward_before_batched_projections_is_whole() -> None:
    """XLNet projects by batched products: its last plain one is of the feed-forward."""
    symbols = "E" + "bbbCbaNMAMaN" * 4 + "M"
    layers = build_template(codes(symbols)[0], symbols, None).layer.tolist()
    assert layers[1:12] == [0] * 11
