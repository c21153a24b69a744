"""What a batch of llama.cpp carries: its tokens, sequences and positions."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import Any, Final

from .phases import Facts

READ: Final = 4096  # tokens of a batch whose sequences and positions are looked up


def facts_of(batch: Any, encodes: bool) -> Facts:
    """Return tokens of each sequence, sequences, and the positions up to the last; None is not known."""
    tokens = int(batch.n_tokens)
    sequences = _sequences(batch, tokens) if tokens <= READ else 1
    context = None
    if batch.pos and tokens <= READ:
        context = max((batch.pos[i] for i in range(tokens)), default=-1) + 1
    each, rest = divmod(tokens, sequences)
    decodes = each == 1 and not rest and not encodes
    return Facts("decode" if decodes else "prefill", None if rest else each, sequences, context)


def _sequences(batch: Any, tokens: int) -> int:
    """Return how many sequences the tokens are of: one where the batch does not say."""
    if not (batch.seq_id and batch.n_seq_id):
        return 1
    return len({batch.seq_id[i][0] for i in range(tokens) if batch.n_seq_id[i] > 0}) or 1
