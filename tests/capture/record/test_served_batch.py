"""What vLLM's metadata of a forward says of its flat batch; the real one is tried in tests/real."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from capture.record.call_phases import CallFacts, InputLength
from capture.record.served_batch import find_served_batch


class Starts:
    """A tensor of the positions where sequences start, which may be on a device."""

    def __init__(self, *values: int, device: str = "cpu") -> None:
        self.values, self.shape, self.device = list(values), (len(values),), SimpleNamespace(type=device)

    def tolist(self) -> list[int]:
        assert self.device.type == "cpu", "reading it would wait for the device"
        return self.values


def begin(monkeypatch: pytest.MonkeyPatch, metadata: object) -> None:
    context = None if metadata == "none" else SimpleNamespace(attn_metadata=metadata)
    monkeypatch.setitem(sys.modules, "vllm.forward_context", SimpleNamespace(_forward_context=context))  # type: ignore[arg-type]


def read(
    monkeypatch: pytest.MonkeyPatch, starts: Starts, tokens: int, longest: int, context: int
) -> CallFacts:
    metadata = SimpleNamespace(
        num_actual_tokens=tokens, max_query_len=longest, max_seq_len=context, query_start_loc=starts
    )
    begin(monkeypatch, {"layers.0.attn": metadata})
    batch = find_served_batch()
    assert batch is not None
    return batch.facts


@pytest.mark.parametrize(
    ("starts", "tokens", "longest", "facts"),
    [
        (Starts(0, 1, 2, 3), 3, 1, CallFacts("decode", 3, 3, 40)),
        (Starts(0, 1, 2, 2, 2), 2, 1, CallFacts("decode", 2, 2, 40)),  # padded
        (Starts(0, 12, 32), 32, 20, CallFacts("prefill", 32, 2, 40)),
        (Starts(0, 1, 2, 34), 34, 32, CallFacts("mixed", 34, 3, 40)),
        (Starts(0, 20, device="cuda"), 20, 20, CallFacts("prefill", 20, 1, 40)),
        (Starts(0, 1, 21, device="cuda"), 21, 20, CallFacts("forward", 21, 2, 40)),
        (Starts(0, 1, 2, device="cuda"), 2, 1, CallFacts("decode", 2, 2, 40)),
    ],
)
def test_the_batch_of_a_forward_is_read(
    starts: Starts, tokens: int, longest: int, facts: CallFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(monkeypatch, starts, tokens, longest, 40) == facts


def test_a_decode_has_one_token_of_each_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    read(monkeypatch, Starts(0, 1, 2, 3), 3, 1, 40)
    batch = find_served_batch()
    assert batch is not None and batch.length == InputLength(3, 1)


@pytest.mark.parametrize("metadata", [None, [{}], {}])
def test_a_rehearsal_has_no_tokens(metadata: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, metadata)
    batch = find_served_batch()
    assert batch is not None and batch.facts == CallFacts("forward") and batch.length is None


def test_other_programs_have_no_served_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_served_batch() is None
    begin(monkeypatch, "none")
    assert find_served_batch() is None
