"""What a serving engine says of the flat batch that its model is called with: vLLM's metadata of a forward.

A flat batch has no dimension of sequences, so the inputs of the call do not show them.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import sys
from typing import Any, Final, NamedTuple

from .call_phases import CallFacts, InputLength

_VLLM: Final = "vllm.forward_context"


class ServedBatch(NamedTuple):
    """A call of the model by a serving engine: its facts; length is None for one without requests."""

    facts: CallFacts
    length: InputLength | None = None


def find_served_batch() -> ServedBatch | None:
    """Return the batch of the forward that vLLM has begun on this thread; None outside of one.

    Forwards without attention metadata are rehearsals: memory is measured, or a kernel warmed up.
    """
    module = sys.modules.get(_VLLM)
    if module is None:
        return None
    context = getattr(module, "_forward_context", None)
    if context is None:
        return None
    metadata = getattr(context, "attn_metadata", None)
    if isinstance(metadata, dict):
        for each in metadata.values():
            if hasattr(each, "num_actual_tokens") and hasattr(each, "max_query_len"):
                return _read_metadata(each)
    return ServedBatch(CallFacts("forward"))


def _read_metadata(metadata: Any) -> ServedBatch:
    """Return the facts of a forward; what lies on a device is not read, because that would wait for it."""
    tokens, longest = int(metadata.num_actual_tokens), int(metadata.max_query_len)
    context = int(getattr(metadata, "max_seq_len", 0)) or None
    if longest == 1:
        return ServedBatch(CallFacts("decode", tokens, tokens, context), InputLength(tokens, 1))
    starts = getattr(metadata, "query_start_loc", None)
    sequences = 1 if tokens == longest else None if starts is None else int(starts.shape[0]) - 1
    phase = "prefill" if sequences == 1 else "forward"
    if starts is not None and starts.device.type == "cpu":
        ends = starts.tolist()
        lengths = [after - before for before, after in zip(ends, ends[1:]) if after > before]  # noqa: RUF007 - of Python 3.10
        sequences, phase = len(lengths), "mixed" if 1 in lengths else "prefill"
    return ServedBatch(CallFacts(phase, tokens, sequences, context), InputLength(sequences or 1, longest))
