"""Which rules may fit a name: what patterns need by hand, and that none is passed over that fits."""

import pytest

from capture.classify.kernel_names import classify
from capture.classify.kernel_rules import INDEX, KERNEL_RULES
from capture.classify.rule_index import RuleIndex, alternatives, needed_letters, places_of
from tests.capture.classify.corpus import corpus


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        ("moe_sort", {"moe"}),
        ("^Memset", {"mem"}),
        ("moe|sort", {"moe", "sor"}),
        (r"a\d+_moe", {"_mo"}),
        ("ab?cde", {"cde"}),
        ("abc?de", None),
        ("ab+cde", {"cde"}),
        ("a[bc]d", None),
        (r"\.py\(", {".py"}),
        (r"\bsum\b", {"sum"}),
        ("(nccl|rccl).*(?:send|recv)", {"ncc", "rcc"}),
        ("(nccl|cu)x", None),
        ("(nccl|cu)?xyz", {"xyz"}),
        ("(?<![a-z])b?mm(?=long)", None),
        ("(a(bcd|efg)|hij)", {"bcd", "efg", "hij"}),
        ("abcd|mm", None),
    ],
)
def test_what_a_pattern_needs(pattern: str, needed: set[str] | None) -> None:
    assert needed_letters(pattern) == needed


def test_alternatives_stand_outside_of_brackets() -> None:
    assert alternatives(r"a(b|c)|[|]|\||d") == ["a(b|c)", "[|]", r"\|", "d"]


def test_an_index_gives_the_places_of_its_rules() -> None:
    index = RuleIndex([(1, ["norm"]), (4, ["x.y"]), (9, ["norm|rope"])])
    assert list(places_of(index.may_fit("rms_norm"))) == [1, 4, 9]
    assert list(places_of(index.may_fit("rope"))) == [4, 9]
    assert list(places_of(index.may_fit(""))) == [4]


def test_no_rule_that_fits_is_passed_over() -> None:
    texts = [kernel.name for kernel in corpus()] + [rule.example for rule in KERNEL_RULES]
    fitting = 0
    for text in texts:
        small = text.lower()
        may_fit = {part: set(places_of(index.may_fit(small))) for part, index in INDEX.items()}
        for place, rule in enumerate(KERNEL_RULES):
            if rule.search(text, small):
                fitting += 1
                assert place in may_fit[rule.part], (rule.id, text)
    assert fitting > 2 * len(corpus())


def test_most_rules_are_passed_over() -> None:
    may_fit = [len(list(places_of(INDEX["base"].may_fit(kernel.name.lower())))) for kernel in corpus()]
    assert sum(may_fit) < 0.25 * len(may_fit) * sum(rule.part == "base" for rule in KERNEL_RULES)
    assert (
        classify("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)").rule_id
        == "comm.all_gather"
    )
