"""Why a kernel has its op and category: each way in which it can have come by them."""

import pytest

from tests.tracetui.runs import made
from tracetui.analysis.classification_reasons import explain_kernel, explain_kernels
from tracetui.look import Look
from tracetui.views import ask, load_view

_FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>, std::array<char*, 1ul>"
    " >(int, at::native::FillFunctor<long>, std::array<char*, 1ul>)"
)


@pytest.mark.parametrize(
    ("row", "because"),
    [
        ({"name": "rms_norm_kernel"}, "rule norm, by the name: rms_norm"),
        ({"name": _FILL}, "rule at.fill, by what it carries: FillFunctor"),
        ({"name": "zyx"}, "no rule matches its name"),
        ({"name": "zyx", "op": "norm"}, "its op is from the source; category: no rule matches its name"),
        (
            {"name": "ampere_gemm_128x64", "path": "decode / L3.attn.q"},
            "the enclosing scope names the op: L3.attn.q; category: rule "
            "matmul.generated, by the name: ampere_gemm_",
        ),
        (
            {"name": "ampere_gemm_128x64", "path": "model / layers.3.self_attn.q_proj"},
            "rule path.attn.q, by the enclosing module: model / layers.3.self_attn.q_proj; "
            "category: rule matmul.generated, by the name: ampere_gemm_",
        ),
        (
            {"name": "ampere_gemm_128x64", "path": "nn.Module: BertSelfOutput_0 / nn.Module: Linear_3"},
            "rule module.hf.self_out, by the enclosing module: BertSelfOutput_0 / Linear_3; "
            "category: rule matmul.generated, by the name: ampere_gemm_",
        ),
        (
            {"name": "rms_norm_kernel", "category": "copy"},
            "its category is from the source; its op by rule norm, by the name: rms_norm",
        ),
        (
            {"name": "zyx", "op": "norm", "category": "norm"},
            "its op is from the source; category: from the source",
        ),
    ],
)
def test_each_way(row: dict[str, str], because: str) -> None:
    (one,) = explain_kernels(made([{**row, "dur": 5}]), "")
    assert one.explanation == because


def test_what_is_inferred_is_said_to_be() -> None:
    run = made([{"name": "gemm", "dur": 5, "op": "attn.q"}], inferred="36 layers of 15 kernels")
    output = explain_kernel(run, "gemm", "attn.q", "matmul", None)
    assert output.startswith(
        "its op is inferred from its position: 36 layers of 15 kernels; category: rule matmul"
    )


def test_kernels_with_a_part_in_their_names_come_by_falling_time() -> None:
    rows = [{"name": "rms_norm_a", "dur": 1}, {"name": "RMS_norm_b", "dur": 2}, {"name": "gemm", "dur": 9}]
    assert [one.name for one in explain_kernels(made(rows), "Norm")] == ["RMS_norm_b", "rms_norm_a"]


def test_the_detail_of_a_kernel_says_which_rule_read_it() -> None:
    run = made([{"name": "rms_norm_kernel", "dur": 5, "lens": "gpu"}])
    notes = ask(load_view("detail"), [run], Look(focus=(("name", "rms_norm_kernel"),))).notes
    assert "op norm, category norm: rule norm, by the name: rms_norm" in notes
    assert not any(
        "rule" in note for note in ask(load_view("detail"), [run], Look(focus=(("op", "norm"),))).notes
    )


def test_the_detail_of_a_kernel_says_which_scope_spoke() -> None:
    row = {"name": "ampere_gemm_128x64", "dur": 5, "lens": "gpu", "path": "decode / L3.attn.q"}
    notes = ask(load_view("detail"), [made([row])], Look(focus=(("name", "ampere_gemm_128x64"),))).notes
    assert any("the enclosing scope names the op: L3.attn.q;" in note for note in notes)
