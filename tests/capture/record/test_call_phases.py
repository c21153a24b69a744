"""What calls are to each other, told from the tokens that they take: loops as people write them, by hand."""

import pytest

from capture.record.call_phases import CallFacts, InputLength, PhaseTracker, find_length


def told(lengths: list[tuple[int, int] | None], *, generates: bool = False) -> list[CallFacts]:
    """Return the facts of calls that take so many (sequences, tokens), each told when the next is known."""
    calls = [length and InputLength(*length) for length in lengths]
    phases = PhaseTracker()
    return [
        phases.infer_facts(this, coming, generates=generates)
        for this, coming in zip(calls, [*calls[1:], None], strict=True)
    ]


def words(facts: list[CallFacts]) -> str:
    return " ".join(fact.phase for fact in facts)


def test_a_cached_generation_counts_a_token_for_each_sequence() -> None:
    facts = told([(8, 20), (8, 1), (8, 1), (8, 1)])
    assert facts == [
        CallFacts("prefill", 8, 8, 20), CallFacts("decode", 8, 8, 21), CallFacts("decode", 8, 8, 22),
        CallFacts("decode", 8, 8, 23),
    ]  # fmt: skip


def test_a_generation_without_a_cache_reads_one_token_more_each_time() -> None:
    facts = told([(2, 5), (2, 6), (2, 7), (2, 7), (2, 7)])
    assert words(facts) == "prefill decode decode decode decode", "the window is full at 7"
    assert [fact.tokens for fact in facts] == [2] * 5
    assert [fact.context for fact in facts] == [5, 6, 7, 7, 7]


def test_passes_over_whole_texts_say_that_tokens_are_unknown() -> None:
    facts = told([(4, 128), (4, 128), (4, 96)])
    assert facts == [CallFacts("forward", None, 4, None)] * 3


def test_what_takes_no_tokens_is_a_forward() -> None:
    assert told([None, None]) == [CallFacts("forward"), CallFacts("forward")]


def test_a_second_request_is_a_prefill_again() -> None:
    facts = told([(1, 9), (1, 1), (1, 4), (1, 1)])
    assert words(facts) == "prefill decode prefill decode"
    assert [fact.context for fact in facts] == [9, 10, 4, 5]


def test_a_model_that_generates_begins_with_a_prefill_whatever_follows() -> None:
    assert words(told([(1, 9), (1, 12)], generates=True)) == "prefill prefill"


class Tensor:
    """As much of a tensor as is looked at."""

    def __init__(self, dtype: str, *shape: int | str) -> None:
        self.dtype, self.shape = dtype, shape

    def is_floating_point(self) -> bool:
        return self.dtype.startswith("torch.float")

    def dim(self) -> int:
        return len(self.shape)


IDS, MASK, PIXELS = (
    Tensor("torch.int64", 2, 7),
    Tensor("torch.int64", 2, 99),
    Tensor("torch.float32", 2, 3, 8),
)


@pytest.mark.parametrize(
    ("args", "kwargs", "length"),
    [
        ((IDS,), {}, (2, 7)),
        ((), {"attention_mask": MASK, "input_ids": IDS}, (2, 7)),
        ((), {"attention_mask": MASK, "labels": MASK, "position_ids": MASK}, None),
        ((), {"input_ids": MASK, "decoder_input_ids": IDS}, (2, 7)),
        ((PIXELS, IDS), {}, (2, 7)),
        (({"input_ids": IDS, "attention_mask": MASK},), {}, (2, 7)),
        (([PIXELS, IDS],), {}, (2, 7)),
        ((PIXELS,), {}, None),
        ((Tensor("torch.int64", 5),), {}, (1, 5)),
        ((Tensor("torch.int64"),), {}, None),
        ((Tensor("torch.uint8", 2, 7), Tensor("torch.bool", 2, 7)), {}, None),
        ((Tensor("torch.int64", 1, "s0"),), {}, None),
        ((3, "text", None), {"use_cache": True}, None),
    ],
)
def test_the_tokens_of_a_call_are_found_among_its_inputs(
    args: tuple[object, ...], kwargs: dict[str, object], length: tuple[int, int] | None
) -> None:
    assert find_length(args, kwargs) == length
