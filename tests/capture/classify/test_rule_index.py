"""The rule index: required trigrams worked out by hand, and no rule that matches is left out."""

import pytest

from capture.classify import kernel_symbols
from capture.classify.kernel_rules import (
    KERNEL_RULES,
    RULE_INDEXES,
    RuleIndex,
    classify_kernel,
    find_required_trigrams,
    iter_set_bits,
    split_alternatives,
)
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
    assert find_required_trigrams(pattern) == needed


def test_alternatives_stand_outside_of_brackets() -> None:
    assert split_alternatives(r"a(b|c)|[|]|\||d") == ["a(b|c)", "[|]", r"\|", "d"]


def test_an_index_gives_the_places_of_its_rules() -> None:
    index = RuleIndex([(1, ["norm"]), (4, ["x.y"]), (9, ["norm|rope"])])
    assert list(iter_set_bits(index.find_candidates("rms_norm"))) == [1, 4, 9]
    assert list(iter_set_bits(index.find_candidates("rope"))) == [4, 9]
    assert list(iter_set_bits(index.find_candidates(""))) == [4]


def test_no_rule_that_fits_is_passed_over() -> None:
    texts = [kernel.name for kernel in corpus()] + [rule.example for rule in KERNEL_RULES]
    fitting = 0
    for text in texts:
        small = text.lower()
        candidates = {
            part: set(iter_set_bits(index.find_candidates(small))) for part, index in RULE_INDEXES.items()
        }
        for place, rule in enumerate(KERNEL_RULES):
            if rule.search(text, small):
                fitting += 1
                assert place in candidates[rule.part], (rule.id, text)
    assert fitting > 2 * len(corpus())


def test_most_rules_are_passed_over() -> None:
    candidates = [
        len(list(iter_set_bits(RULE_INDEXES["base"].find_candidates(kernel.name.lower()))))
        for kernel in corpus()
    ]
    assert sum(candidates) < 0.25 * len(candidates) * sum(rule.part == "base" for rule in KERNEL_RULES)
    assert (
        classify_kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)").rule_id
        == "comm.all_gather"
    )


def test_a_symbol_is_that_of_the_first_rule_that_fits_whatever_is_tried() -> None:
    texts = [kernel.name.lower() for kernel in corpus()]
    tables = [rules for name, rules in vars(kernel_symbols).items() if name.endswith("_RULES")]
    tables = [rules for rules in tables if isinstance(rules, tuple)]
    first = {
        (at, text): next((symbol for symbol, pattern in rules if pattern.search(text)), None)
        for at, rules in enumerate(tables)
        for text in texts
    }
    assert len(tables) == 4 and len(set(first.values())) > 15
    for (at, text), symbol in first.items():
        assert kernel_symbols._find_first_match(tables[at], text) == symbol, text
