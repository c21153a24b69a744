"""The rule index: required fragments worked out by hand, and no rule that matches is left out."""

import pytest

from capture.classify import kernel_symbols
from capture.classify.kernel_rules import (
    KERNEL_RULES,
    RULE_INDEXES,
    RuleIndex,
    classify_kernel,
    find_required_fragments,
    iter_set_bits,
    split_alternatives,
)
from capture.classify.kernel_symbols import SymbolRules
from tests.capture.classify.corpus import corpus


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        ("moe_sort", {"moe"}),
        ("^Memset", {"mem"}),
        ("moe|sort", {"moe", "sor"}),
        (r"a\d+_moe", {"_mo"}),
        ("ab?cde", {"cde"}),
        ("abc?de", {"ab"}),
        ("ab+cde", {"cde"}),
        ("a[bc]d", {"a"}),
        (r"\.py\(", {".py"}),
        (r"\bsum\b", {"sum"}),
        ("(nccl|rccl).*(?:send|recv)", {"ncc", "rcc"}),
        ("(nccl|cu)x", {"ncc", "cu"}),
        ("(nccl|cu)?xyz", {"xyz"}),
        ("(?<![a-z])b?mm(?=long)", {"mm"}),
        ("(a(bcd|efg)|hij)", {"bcd", "efg", "hij"}),
        ("abcd|mm", {"abc", "mm"}),
        ("[ab]|mm", None),
        (r"w\d+(norm|rope)", {"nor", "rop"}),
    ],
)
def test_what_a_pattern_needs(pattern: str, needed: set[str] | None) -> None:
    assert find_required_fragments(pattern) == needed


def test_alternatives_stand_outside_of_brackets() -> None:
    assert split_alternatives(r"a(b|c)|[|]|\||d") == ["a(b|c)", "[|]", r"\|", "d"]


def test_an_index_gives_the_places_of_its_rules() -> None:
    index = RuleIndex([(1, ["norm"]), (4, ["[xy]"]), (9, ["norm|rope"]), (11, [r"\bmm\b"])])
    assert list(iter_set_bits(index.find_candidates("rms_norm"))) == [1, 4, 9]
    assert list(iter_set_bits(index.find_candidates("rope"))) == [4, 9]
    assert list(iter_set_bits(index.find_candidates(""))) == [4]
    assert list(iter_set_bits(index.find_candidates("bmm"))) == [4, 11]


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


def test_a_name_of_which_no_rule_knows_a_fragment_is_searched_by_none() -> None:
    tables = [table._index for table in vars(kernel_symbols).values() if isinstance(table, SymbolRules)]
    assert len(tables) == 4
    assert [index.find_candidates("12345") for index in (*RULE_INDEXES.values(), *tables)] == [0] * 7


def test_a_symbol_is_that_of_the_first_rule_that_fits_whatever_is_tried() -> None:
    texts = [kernel.name.lower() for kernel in corpus()]
    tables = [table for table in vars(kernel_symbols).values() if isinstance(table, SymbolRules)]
    first = {
        (at, text): next((symbol for symbol, pattern in table.rules if pattern.search(text)), None)
        for at, table in enumerate(tables)
        for text in texts
    }
    assert len(tables) == 4 and len(set(first.values())) > 15
    for (at, text), symbol in first.items():
        assert tables[at].find_symbol(text) == symbol, text
