"""Names as they are shown: short where they are long, whole where other programs read them."""

import json

from tests.capture.classify.corpus import corpus
from tests.tracetui.runs import made
from tracetui.glyphs import READABLE_CHARS, format_display_name, map_display_names
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import load_view

FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<{}>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<{}>, std::array<char*, 1ul>)"
)
INTS, FLOATS = FILL.format("int", "int"), FILL.format("float", "float")


def test_long_names_are_shown_short_and_the_others_as_they_are() -> None:
    assert map_display_names([INTS, FLOATS, "rms_norm", "Memcpy DtoH (Device -> Pinned)"]) == {
        INTS: "elementwise fill int32",
        FLOATS: "elementwise fill fp32",
    }
    assert format_display_name("rms_norm_kernel") == "rms_norm_kernel"
    assert format_display_name("_ZN3foo3barEv") == "foo::bar"


def test_a_short_name_that_a_row_has_already_is_given_to_no_other() -> None:
    assert map_display_names([INTS, "elementwise fill int32"]) == {}


def test_no_two_names_of_the_corpus_look_alike() -> None:
    names = [kernel.name for kernel in corpus()]
    shown = map_display_names(names)
    assert len(set(shown.values()) | {name for name in names if name not in shown}) == len(names)
    assert all(len(name) > READABLE_CHARS or name.startswith("_Z") for name in shown)


def test_reports_for_people_show_short_names_and_those_for_programs_whole_ones() -> None:
    run = made([{"name": name, "dur": 5, "lens": "gpu"} for name in (INTS, "rms_norm")])
    asked = {
        form: format_report(load_view("kernels"), [run], Look(), form)
        for form in ("table", "md", "csv", "json")
    }
    for form in ("table", "md"):
        assert "elementwise fill int32" in asked[form] and "FillFunctor" not in asked[form]
    assert INTS in asked["csv"] and "fill int32" not in asked["csv"]
    assert {row["name"] for row in json.loads(asked["json"])["rows"]} == {INTS, "rms_norm"}
    assert "elementwise fill int32" in format_report(load_view("summary"), [run], Look())


def test_a_filter_fits_names_as_they_are_and_as_they_are_shown() -> None:
    run = made([{"name": name, "dur": 5, "lens": "gpu"} for name in (INTS, FLOATS, "rms_norm")])
    for pattern, kept in (("FillFunctor<int>", {INTS}), ("fill int32", {INTS}), ("norm", {"rms_norm"})):
        rows = json.loads(format_report(load_view("kernels"), [run], Look(filter=pattern), "json"))["rows"]
        assert {row["name"] for row in rows} == kept


def test_findings_tell_short_names_and_their_rows_whole_ones() -> None:
    """One fill gets slower and stands on both sides, that of another type stands in b alone."""
    sides = [
        made([
            {"kind": "kernel", "name": name, "step": s, "dur": dur + s % 3, "lens": "gpu", "phase": "decode"}
            for s in range(40) for name, dur in rows
        ])
        for rows in (((INTS, 1_000),), ((INTS, 3_000), (FLOATS, 500)))
    ]  # fmt: skip
    rows = load_view("findings").answer(sides, Look()).rows
    actual = {row["kind"]: (row["finding"], row["row"]) for row in rows.iter_rows(named=True)}
    assert actual["slower"][0].startswith("elementwise fill int32 is slower in decode: 1.0")
    assert actual["slower"][1] == INTS
    assert actual["new"][0].endswith(": elementwise fill fp32 (20.04 µs)") and actual["new"][1] == FLOATS
    assert all("at::native" not in finding for finding, _ in actual.values())
