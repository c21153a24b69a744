"""What calls are to each other, told from the tokens that they take: loops as people write them, by hand."""

from typing import Any

import pytest

from capture.record.call_phases import (
    CallFacts,
    CallReader,
    InputLength,
    PhaseTracker,
    find_length,
    is_assisted,
)
from capture.record.call_stack import RecordedStep


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


def test_a_text_of_one_token_grows_without_a_cache() -> None:
    facts = told([(1, 1), (1, 2), (1, 3), (1, 1), (1, 2)])
    assert words(facts) == "decode decode decode decode decode"


def test_a_request_of_two_tokens_after_single_ones_is_a_prefill() -> None:
    facts = told([(1, 2), (1, 1), (1, 1), (1, 2), (1, 1), (1, 2), (1, 1)])
    assert words(facts) == "prefill decode decode prefill decode prefill decode"


def test_a_second_request_is_a_prefill_again() -> None:
    facts = told([(1, 9), (1, 1), (1, 4), (1, 1)])
    assert words(facts) == "prefill decode prefill decode"
    assert [fact.context for fact in facts] == [9, 10, 4, 5]


def test_a_model_that_generates_begins_with_a_prefill_whatever_follows() -> None:
    assert words(told([(1, 9), (1, 12)], generates=True)) == "prefill prefill"


def follow(*calls: InputLength) -> list[CallFacts]:
    phases = PhaseTracker()
    return [
        phases.infer_facts(this, coming, generates=True)
        for this, coming in zip(calls, [*calls[1:], None], strict=True)
    ]


def test_chunks_of_a_prompt_have_the_context_of_their_cache() -> None:
    facts = follow(*(InputLength(1, 64, past, 7) for past in (0, 64, 128)), InputLength(1, 1, 192, 7))
    assert words(facts) == "prefill prefill prefill decode"
    assert [fact.context for fact in facts] == [64, 128, 192, 193]


def test_interleaved_requests_have_their_own_contexts() -> None:
    calls = [InputLength(1, 8, 0, cache) for cache in (1, 2)]
    calls += [InputLength(1, 1, past, cache) for past in (8, 9) for cache in (1, 2)]
    assert [fact.context for fact in follow(*calls)] == [8, 8, 9, 9, 10, 10]


def test_a_cache_that_keeps_fewer_tokens_verified_a_draft() -> None:
    facts = follow(InputLength(1, 10, 0, 7), *(InputLength(1, 5, past, 7) for past in (10, 13, 18, 19)))
    assert words(facts) == "prefill verify verify verify verify"
    assert [fact.tokens for fact in facts] == [1, 3, 5, 1, None], "what the last one accepted is unknown"
    assert [fact.context for fact in facts] == [10, 15, 18, 23, 24]


def test_a_draft_that_is_accepted_whole_is_verified_too() -> None:
    drafted = InputLength(1, 5, 10, 7, is_drafted=True)
    facts = follow(InputLength(1, 10, 0, 7), drafted, InputLength(1, 1, 15, 7))
    assert words(facts) == "prefill verify decode"
    assert facts[1].tokens == 5


def test_a_draft_that_is_looked_up_is_known_by_the_function_that_verifies_it() -> None:
    """No other model is called: the code is that of a file of transformers' generation."""
    scope: dict[str, Any] = {"ask": is_assisted}
    code = "def _assisted_decoding(): return ask()\ndef _sample(): return ask()"
    exec(compile(code, "transformers/generation/utils.py", "exec"), scope)  # noqa: S102
    assert (scope["_assisted_decoding"](), scope["_sample"](), is_assisted()) == (True, False, False)


def test_beams_are_sequences_whose_tokens_count_once() -> None:
    facts = follow(InputLength(8, 10, 0, 7, beams=4), InputLength(8, 1, 10, 7, beams=4))
    assert facts == [CallFacts("prefill", 2, 8, 10), CallFacts("decode", 2, 8, 11)]


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
        ((PIXELS, Tensor("torch.int64", 2)), {}, None),
        ((), {"x": PIXELS, "t": Tensor("torch.int64", 2)}, None),
        ((Tensor("torch.int64", 5), PIXELS), {}, (1, 5)),
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
    found = find_length(args, kwargs)
    assert (None if found is None else found[:2]) == length


@pytest.mark.parametrize(
    ("sizes", "facts"),
    [
        ([4, 4], CallFacts("forward", shape="4")),
        ([4, 1], CallFacts("prefill", 1, 1, 4, shape="1x4")),
        ([1, 1], CallFacts("decode", 1, 1, 1)),
    ],
)
def test_infer_facts_of_a_vector_of_tokens_leaves_open_how_many_sequences_it_has(
    sizes: list[int], facts: CallFacts
) -> None:
    """It is one text, or one token of each of several, as cells of recurrent networks take them."""
    steps = [RecordedStep(0, is_training=False) for _ in sizes]
    for step, size in zip(steps, sizes, strict=True):
        step.read_call(CallReader(), object(), (Tensor("torch.int64", size),), {}, None)
    assert steps[0].infer_facts(PhaseTracker(), steps[1].length) == facts
    open_facts = steps[0].open_facts
    assert open_facts is not None and open_facts.batch == (None if sizes[0] > 1 else 1)


class Generator:
    def generate(self) -> None: ...


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        (None, CallFacts("prefill", 2, 2, 7, shape="2x7")),
        (IDS, CallFacts("forward", None, 2, shape="2x7")),
    ],
)
def test_infer_facts_of_a_loss_is_a_forward_of_a_model_that_generates(
    labels: Tensor | None, facts: CallFacts
) -> None:
    """An evaluation scores whole texts and produces no tokens."""
    step = RecordedStep(0, is_training=False)
    step.read_call(CallReader(), Generator(), (), {"input_ids": IDS, "labels": labels}, None)
    assert step.infer_facts(PhaseTracker(), step.length) == facts
    assert step.open_facts is not None and step.open_facts.phase == facts.phase


def test_no_tokens_are_looked_for_within_a_model_of_images() -> None:
    """The embedding of its timesteps takes integers."""
    for shape, is_searched in (((2, 4, 8, 8), False), ((2, 4, 8), True)):
        step = RecordedStep(0, is_training=False)
        step.read_call(CallReader(), object(), (Tensor("torch.float32", *shape), 5), {}, None)
        assert step.length is None and step.needs_length is is_searched
