"""Convert Doppler's profile blocks to events: a step, its printed total, and one row per label."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

CONTEXT_GUESS: Final = "context length of a step: prompt tokens plus tokens decoded up to its end"
WALL_GUESS: Final = "wall time of a decode step: from one printed report to the next"


@dataclass
class ProfileBlock:
    """One printed report: the sums of one prefill, one decode step or one batch of decode steps."""

    title: str
    phase: str | None = None
    tokens: int | None = None
    position: int | None = None  # tokens decoded up to its end, if the title says so
    t: int | None = None  # time of printing, ns
    total: int | None = None
    rows: list[tuple[str, int]] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)  # launches of each row, if the source counts them
    is_continuation: bool = False  # another report of the same step


@dataclass(frozen=True)
class RunTotals:
    """Totals that the source reports for a run, in ns and tokens."""

    prompt_tokens: int | None = None
    decoded: int | None = None
    ttft: int | None = None
    prefill: int | None = None
    decode: int | None = None


NO_LAUNCHES: Final = "each row is the sum of one label over one report: launches are not counted"

EVENT_SCHEMA: Final = {
    "kind": pl.String, "lens": pl.String, "name": pl.String, "step": pl.Int64, "phase": pl.String,
    "t": pl.Int64, "dur": pl.Int64, "tokens": pl.Int64, "context": pl.Int64, "bytes": pl.Float64,
    "path": pl.String,
}  # fmt: skip


def build_events(blocks: Sequence[ProfileBlock], clock: RunTotals) -> tuple[list[dict[str, Any]], list[str]]:
    """Build the rows of the event frame; also return which values are derived, not printed."""
    step_numbers = _number_blocks(blocks)
    steps = _build_step_rows(blocks, step_numbers, clock)
    guesses = [CONTEXT_GUESS] if any(row["context"] is not None for row in steps) else []
    if any(row["phase"] == "decode" and row["dur"] is not None for row in steps):
        guesses.append(WALL_GUESS)
    numbered = zip(blocks, step_numbers, strict=True)
    return steps + [row for block, step in numbered for row in _build_block_rows(block, step)], guesses


def has_all_tokens(blocks: Sequence[ProfileBlock], clock: RunTotals) -> bool:
    """Return True unless the run reports decoded tokens that no block accounts for."""
    decoded = sum(block.tokens or 0 for block in blocks if block.phase == "decode")
    return clock.decoded is None or clock.decoded == decoded


def sum_totals_by_phase(blocks: Sequence[ProfileBlock]) -> dict[str, int]:
    """Sum the printed totals by phase; rows are rounded, so their own sum is slightly off."""
    phases = {block.phase for block in blocks if block.phase and block.total is not None}
    blocks_by_phase = {p: [block for block in blocks if block.phase == p] for p in sorted(phases)}
    return {f"{p}_gpu_ns": sum(block.total or 0 for block in group) for p, group in blocks_by_phase.items()}


def _number_blocks(blocks: Sequence[ProfileBlock]) -> list[int | None]:
    """Number the step of each block: prefill is 0, decode blocks count from 1, others have None."""
    step_numbers: list[int | None] = []
    decoded = 0
    for block in blocks:
        decoded += block.phase == "decode"
        step_numbers.append({"prefill": 0, "decode": decoded}.get(block.phase or ""))
    return step_numbers


def _build_block_rows(block: ProfileBlock, step: int | None) -> list[dict[str, Any]]:
    shared = {"lens": "gpu", "step": step, "phase": block.phase}
    rows: list[dict[str, Any]] = []
    if block.total is not None:
        rows.append({"kind": "span", "name": block.title, "dur": block.total, **shared})
    rows += [{"kind": "kernel", "name": label, "dur": dur, **shared} for label, dur in block.rows]
    return rows


def _build_step_rows(
    blocks: Sequence[ProfileBlock], numbers: Sequence[int | None], clock: RunTotals
) -> list[dict[str, Any]]:
    """Build a step row for the prefill and for each decode block."""
    is_complete = has_all_tokens(blocks, clock)
    decode_blocks = [block for block in blocks if block.phase == "decode"]
    decode_start = _compute_decode_start(decode_blocks, clock) if is_complete else None
    decode_steps = _DecodeSteps(clock, is_complete, decode_start)
    rows = []
    for block, number in zip(blocks, numbers, strict=True):
        if block.phase == "prefill" and not block.is_continuation:
            rows.append(_build_prefill_row(clock, decode_start))
        elif block.phase == "decode":
            rows.append(decode_steps.build_row(block, number))
    return rows


class _DecodeSteps:
    """Build decode steps in order, carrying the tokens so far and the last timestamp."""

    def __init__(self, clock: RunTotals, is_complete: bool, begin: int | None) -> None:
        self._clock, self._is_complete, self._last, self._done = clock, is_complete, begin, 0

    def build_row(self, block: ProfileBlock, number: int | None) -> dict[str, Any]:
        """Build the step row of the next block; its wall time needs a complete profile."""
        self._done = block.position if block.position is not None else self._done + (block.tokens or 0)
        has_context = self._is_complete or block.position is not None
        context = _compute_context(self._clock, self._done) if has_context else None
        wall = _compute_duration(self._last, block.t) if self._is_complete else None
        start = self._last if wall is not None else None
        self._last = block.t
        return _build_step_row(number, "decode", start, wall, block.tokens, context)


def _compute_context(clock: RunTotals, decoded: int) -> int | None:
    """Compute the tokens in context at a step; None if the prompt length is unknown."""
    return None if clock.prompt_tokens is None else clock.prompt_tokens + decoded


def _compute_decode_start(decode_blocks: Sequence[ProfileBlock], clock: RunTotals) -> int | None:
    """Subtract the run's decode time from the timestamp of the last report; None if either is unknown."""
    if not decode_blocks or decode_blocks[-1].t is None or clock.decode is None or clock.decoded is None:
        return None
    return decode_blocks[-1].t - clock.decode


def _build_prefill_row(clock: RunTotals, decode_begins: int | None) -> dict[str, Any]:
    start = None if decode_begins is None or clock.ttft is None else decode_begins - clock.ttft
    return _build_step_row(0, "prefill", start, clock.prefill, clock.prompt_tokens, clock.prompt_tokens)


def _build_step_row(
    number: int | None, phase: str, t: int | None, dur: int | None, tokens: int | None, context: int | None
) -> dict[str, Any]:
    return {
        "kind": "step", "lens": "wall", "name": phase, "step": number, "phase": phase,
        "t": t, "dur": dur, "tokens": tokens, "context": context,
    }  # fmt: skip


def _compute_duration(start: int | None, end: int | None) -> int | None:
    return end - start if start is not None and end is not None and end >= start else None
