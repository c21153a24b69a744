"""Names as they are shown: short where they are long, whole where other programs read them."""

import json

from tests.capture.classify.corpus import corpus
from tests.tracetui.runs import made
from tracetui.look import Look
from tracetui.report import report
from tracetui.shown_names import READABLE, shown_name, shown_names
from tracetui.views import view

FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<{}>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<{}>, std::array<char*, 1ul>)"
)
INTS, FLOATS = FILL.format("int", "int"), FILL.format("float", "float")


def test_long_names_are_shown_short_and_the_others_as_they_are() -> None:
    assert shown_names([INTS, FLOATS, "rms_norm", "Memcpy DtoH (Device -> Pinned)"]) == {
        INTS: "elementwise fill int32",
        FLOATS: "elementwise fill fp32",
    }
    assert shown_name("rms_norm_kernel") == "rms_norm_kernel"
    assert shown_name("_ZN3foo3barEv") == "foo::bar"


def test_a_short_name_that_a_row_has_already_is_given_to_no_other() -> None:
    assert shown_names([INTS, "elementwise fill int32"]) == {}


def test_no_two_names_of_the_corpus_look_alike() -> None:
    names = [kernel.name for kernel in corpus()]
    shown = shown_names(names)
    assert len(set(shown.values()) | {name for name in names if name not in shown}) == len(names)
    assert all(len(name) > READABLE or name.startswith("_Z") for name in shown)


def test_reports_for_people_show_short_names_and_those_for_programs_whole_ones() -> None:
    run = made([{"name": name, "dur": 5, "lens": "gpu"} for name in (INTS, "rms_norm")])
    asked = {form: report(view("kernels"), [run], Look(), form) for form in ("table", "md", "csv", "json")}
    for form in ("table", "md"):
        assert "elementwise fill int32" in asked[form] and "FillFunctor" not in asked[form]
    assert INTS in asked["csv"] and "fill int32" not in asked["csv"]
    assert {row["name"] for row in json.loads(asked["json"])["rows"]} == {INTS, "rms_norm"}
    assert "elementwise fill int32" in report(view("summary"), [run], Look())
