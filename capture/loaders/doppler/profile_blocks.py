"""Convert Doppler's profile blocks to events: a step, its printed total, and one row per label."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from capture.run import list_column_types

EVENT_SCHEMA: Final = list_column_types(
    "kind", "lens", "name", "step", "phase", "t", "dur", "tokens", "context", "bytes", "path", "count"
)
NO_LAUNCHES: Final = "each row is the sum of one label over one report: launches are not counted"
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
    labelled = ((*row, count) for row, count in zip_longest(block.rows, block.counts))
    rows = [{"kind": "kernel", "name": n, "dur": dur, "count": count, **shared} for n, dur, count in labelled]
    if block.total is None:
        return rows
    return [{"kind": "span", "name": block.title, "dur": block.total, **shared}, *rows]


def _build_step_rows(
    blocks: Sequence[ProfileBlock], numbers: Sequence[int | None], clock: RunTotals
) -> list[dict[str, Any]]:
    """Build a step row for the prefill and for each decode block; wall times need a complete profile."""
    is_complete = has_all_tokens(blocks, clock)
    decode_start = _compute_decode_start(blocks, clock)
    rows, decoded, latest = [], 0, decode_start
    for block, number in zip(blocks, numbers, strict=True):
        row = {"kind": "step", "lens": "wall", "name": block.phase, "step": number, "phase": block.phase}
        if block.phase == "prefill" and not block.is_continuation:
            row |= {"t": _subtract(decode_start, clock.ttft), "dur": clock.prefill}
            rows.append(row | {"tokens": clock.prompt_tokens, "context": clock.prompt_tokens})
        elif block.phase == "decode":
            decoded = decoded + (block.tokens or 0) if block.position is None else block.position
            has_context = is_complete or block.position is not None
            wall = _subtract(block.t, latest)
            row |= {"t": None, "dur": None} if wall is None or wall < 0 else {"t": latest, "dur": wall}
            context = _subtract(clock.prompt_tokens, -decoded) if has_context else None
            rows.append(row | {"tokens": block.tokens, "context": context})
            latest = block.t if is_complete else None
    return rows


def _compute_decode_start(blocks: Sequence[ProfileBlock], clock: RunTotals) -> int | None:
    """Subtract the run's decode time from the timestamp of the last report; None if anything is missing."""
    last = next((block.t for block in reversed(blocks) if block.phase == "decode"), None)
    is_complete = clock.decoded is not None and has_all_tokens(blocks, clock)
    return _subtract(last, clock.decode) if is_complete else None


def _subtract(value: int | None, other: int | None) -> int | None:
    return None if value is None or other is None else value - other
