"""What the calls of a model are to each other: prefill, decode, or forward passes of another kind."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .inputs import Length


class Facts(NamedTuple):
    """What is known of one call: None is not known."""

    phase: str
    tokens: int | None = None
    batch: int | None = None
    context: int | None = None


class Phases:
    """Tells the phases of the calls of one thread, one after the other.

    One token a sequence is decoding. So is a call that takes one more than the last did: a model without a
    cache reads the whole text again for each token.
    """

    def __init__(self) -> None:
        self._last: Length | None = None
        self._phase = "forward"
        self._context = 0

    def begins_anew(self, coming: Length | None) -> bool:
        """Return whether the coming call belongs to another text than the last."""
        return coming is not None and coming.tokens > 1 and not _follows(self._last, coming, self._phase)

    def facts(self, this: Length | None, coming: Length | None, *, generates: bool) -> Facts:
        """Return what a call was; `generates` when the model is known to answer in tokens."""
        if this is None:
            self._last, self._phase = None, "forward"
            return Facts("forward")
        again = _follows(self._last, this, self._phase)
        self._phase = self._phase_of(this, coming, again=again, generates=generates)
        self._last = this
        if self._phase == "forward":
            return Facts("forward", batch=this.batch)
        cached = self._phase == "decode" and this.tokens == 1
        self._context = self._context + 1 if cached else this.tokens
        return Facts(self._phase, this.batch, this.batch, self._context)

    def _phase_of(self, this: Length, coming: Length | None, *, again: bool, generates: bool) -> str:
        if this.tokens == 1 or again:
            return "decode"
        if generates or (coming is not None and (coming.tokens == 1 or _grows(this, coming))):
            return "prefill"
        return "forward"


def _grows(last: Length, this: Length) -> bool:
    return this.batch == last.batch and this.tokens == last.tokens + 1


def _follows(last: Length | None, this: Length, phase: str) -> bool:
    """Return whether a call without a cache reads the text of the last call again, one token longer.

    Once the text fills the model's window it no longer grows.
    """
    if last is None or phase == "forward" or this.tokens == 1:
        return False
    return _grows(last, this) or (phase == "decode" and last.tokens > 1 and last == this)
