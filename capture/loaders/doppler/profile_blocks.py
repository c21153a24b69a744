"""Profile blocks of Doppler as events: a step, its printed total, and one row a label."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

CONTEXT: Final = "the context length of a step: prompt tokens plus the tokens decoded up to its end"
WALL: Final = "the wall time of a decode step: from one printed report to the next"


@dataclass
class Block:
    """One printed report: the sums of one prefill, one decode step or one batch of decode steps."""

    title: str
    phase: str | None = None
    tokens: int | None = None
    position: int | None = None  # tokens decoded up to its end, where the title tells it
    t: int | None = None  # when it was printed
    total: int | None = None
    rows: list[tuple[str, int]] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)  # launches of each row, where the source counts
    part_of_last: bool = False  # a further report of the same step


@dataclass(frozen=True)
class Clock:
    """What the source says of the whole run, in ns and tokens."""

    prompt_tokens: int | None = None
    decoded: int | None = None
    ttft: int | None = None
    prefill: int | None = None
    decode: int | None = None


NO_LAUNCHES: Final = "every row is the sum of one label over one report: launches are not counted"

SCHEMA: Final = {
    "kind": pl.String, "lens": pl.String, "name": pl.String, "step": pl.Int64, "phase": pl.String,
    "t": pl.Int64, "dur": pl.Int64, "tokens": pl.Int64, "context": pl.Int64, "bytes": pl.Float64,
    "path": pl.String,
}  # fmt: skip


def events(blocks: Sequence[Block], clock: Clock) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows of the event frame, and what in them is derived rather than printed."""
    numbers = _numbers(blocks)
    steps = _steps(blocks, numbers, clock)
    guesses = [CONTEXT] if any(s["context"] is not None for s in steps) else []
    if any(s["phase"] == "decode" and s["dur"] is not None for s in steps):
        guesses.append(WALL)
    return steps + [row for b, n in zip(blocks, numbers, strict=True) for row in _timed(b, n)], guesses


def is_whole(blocks: Sequence[Block], clock: Clock) -> bool:
    """Return whether the decode blocks account for every decoded token, as far as the source tells."""
    return clock.decoded is None or clock.decoded == sum(b.tokens or 0 for b in blocks if b.phase == "decode")


def totals(blocks: Sequence[Block]) -> dict[str, int]:
    """Return the printed totals by phase: rows are rounded, so their sum is a little off."""
    phases = {b.phase for b in blocks if b.phase and b.total is not None}
    return {f"{p}_gpu_ns": sum(b.total or 0 for b in blocks if b.phase == p) for p in sorted(phases)}


def _numbers(blocks: Sequence[Block]) -> list[int | None]:
    """Return a step for each block: prefill is 0, decode blocks count from 1, others have None."""
    numbers: list[int | None] = []
    decoded = 0
    for block in blocks:
        decoded += block.phase == "decode"
        numbers.append({"prefill": 0, "decode": decoded}.get(block.phase or ""))
    return numbers


def _timed(block: Block, step: int | None) -> list[dict[str, Any]]:
    same = {"lens": "gpu", "step": step, "phase": block.phase}
    rows: list[dict[str, Any]] = []
    if block.total is not None:
        rows.append({"kind": "span", "name": block.title, "dur": block.total, **same})
    rows += [{"kind": "kernel", "name": label, "dur": dur, **same} for label, dur in block.rows]
    return rows


def _steps(blocks: Sequence[Block], numbers: Sequence[int | None], clock: Clock) -> list[dict[str, Any]]:
    """Return a step row for the prefill and for each decode block, in their order."""
    whole = is_whole(blocks, clock)
    begin = _decode_begins([b for b in blocks if b.phase == "decode"], clock) if whole else None
    decoding = _Decoding(clock, whole, begin)
    rows = []
    for block, number in zip(blocks, numbers, strict=True):
        if block.phase == "prefill" and not block.part_of_last:
            rows.append(_prefill(clock, begin))
        elif block.phase == "decode":
            rows.append(decoding.step(block, number))
    return rows


class _Decoding:
    """What is carried from one decode block to the next: the tokens so far and the stamp of the last."""

    def __init__(self, clock: Clock, whole: bool, begin: int | None) -> None:
        self._clock, self._whole, self._last, self._done = clock, whole, begin, 0

    def step(self, block: Block, number: int | None) -> dict[str, Any]:
        """Return the step row of the next block; its wall time needs a profile that is whole."""
        self._done = block.position if block.position is not None else self._done + (block.tokens or 0)
        context = _context(self._clock, self._done) if self._whole or block.position is not None else None
        wall = _between(self._last, block.t) if self._whole else None
        start = self._last if wall is not None else None
        self._last = block.t
        return _step(number, "decode", start, wall, block.tokens, context)


def _context(clock: Clock, decoded: int) -> int | None:
    """Return how many tokens stand behind a step, None where the length of the prompt is not told."""
    return None if clock.prompt_tokens is None else clock.prompt_tokens + decoded


def _decode_begins(decode: Sequence[Block], clock: Clock) -> int | None:
    """Return the stamp of the last report less the decode time that the run states."""
    if not decode or decode[-1].t is None or clock.decode is None or clock.decoded is None:
        return None
    return decode[-1].t - clock.decode


def _prefill(clock: Clock, decode_begins: int | None) -> dict[str, Any]:
    start = None if decode_begins is None or clock.ttft is None else decode_begins - clock.ttft
    return _step(0, "prefill", start, clock.prefill, clock.prompt_tokens, clock.prompt_tokens)


def _step(
    number: int | None, phase: str, t: int | None, dur: int | None, tokens: int | None, context: int | None
) -> dict[str, Any]:
    return {
        "kind": "step", "lens": "wall", "name": phase, "step": number, "phase": phase,
        "t": t, "dur": dur, "tokens": tokens, "context": context,
    }  # fmt: skip


def _between(start: int | None, end: int | None) -> int | None:
    return end - start if start is not None and end is not None and end >= start else None
