"""Draw the next token on the device: greedy, by temperature, or from the most likely tokens, in phases.

Greedy and plain temperature take two phases: the best of each block of logits (with Gumbel noise, whose
maximum is a draw from the softmax), then the best of those. Top-k and top-p take three: the most likely of
each block, those of groups of blocks, the cut and the draw. At most 64 candidates remain; a nucleus that
needs more is cut to them and counted in `cut`. The steps drawn so far are counted on the device.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

from engines.kernels.launch_support import (
    CompileCase,
    Work,
    count_bytes,
    divide_up,
    make_metadata,
    pad_to_power_of_2,
)

BLOCK: Final = 1024
MAX_CANDIDATES: Final = 64
BLOCKS_PER_GROUP: Final = BLOCK // MAX_CANDIDATES


def compute_nucleus(logits: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    """Return the probability of every token after the cut, [..., vocab]: the reference of the cut."""
    scaled = logits.double() / temperature
    chances, order = scaled.sort(stable=True, descending=True)
    chances = chances.softmax(-1) if not top_k else chances[..., :top_k].softmax(-1)
    before = chances.cumsum(-1) - chances
    chances = chances.masked_fill(before >= top_p, 0.0)
    candidates = torch.zeros_like(scaled).scatter(-1, order[..., : chances.shape[-1]], chances)
    return candidates / candidates.sum(-1, keepdim=True)


def reference(
    logits: torch.Tensor, generator: torch.Generator, temperature: float, top_k: int = 0, top_p: float = 1.0
) -> torch.Tensor:
    """Draw one token per row; temperature 0 selects the most likely."""
    if temperature == 0:
        return logits.argmax(-1)
    chances = compute_nucleus(logits, temperature, top_k, top_p)
    return torch.multinomial(chances, 1, generator=generator)[..., 0]


def _compute_work(a: Mapping[str, Any]) -> Work:
    return 2 * a["logits"].numel(), count_bytes(a, "logits")


def _skip_work(_: Mapping[str, Any]) -> Work:
    """Return no work: a small kernel."""
    return 0, 0


@triton.jit
def gumbel(seed, step, row, at):
    """Return noise whose maximum sum with log probabilities is a draw; it differs by step, row and token."""
    u = tl.rand(seed + step * 65537 + row, at)
    return -tl.log(-tl.log(tl.maximum(u, 1e-10)))


@triton.jit(launch_metadata=make_metadata(32, _compute_work))
def best_of_block_kernel(
    logits, best, index, inverse, seed, step,
    VOCAB: tl.constexpr, BLOCKS: tl.constexpr, NOISE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find the best logit of one block."""
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = logits + row.to(tl.int64) * VOCAB + at
    value = tl.load(place, mask=at < VOCAB, other=float("-inf")).to(tl.float32)
    if NOISE:
        value = value * inverse + gumbel(seed, tl.load(step), row, at)
    top, where = tl.max(value, 0, return_indices=True)
    tl.store(best + row * BLOCKS + tl.program_id(0), top)
    tl.store(index + row * BLOCKS + tl.program_id(0), tl.program_id(0) * BLOCK + where)


@triton.jit(launch_metadata=make_metadata(32, _skip_work))
def best_of_all_kernel(best, index, token, step, BLOCKS: tl.constexpr, PADDED: tl.constexpr):
    """Find the best of all blocks."""
    row = tl.program_id(0)
    at = tl.arange(0, PADDED)
    value = tl.load(best + row * BLOCKS + at, mask=at < BLOCKS, other=float("-inf"))
    _, where = tl.max(value, 0, return_indices=True)
    tl.store(token + row, tl.load(index + row * BLOCKS + where).to(token.dtype.element_ty))
    if row == 0:
        tl.store(step, tl.load(step) + 1)


@triton.jit
def sort_key(value, at):
    """Return an integer that sorts like (value, earlier position) and contains both."""
    bits = value.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    return (ordered << 32) | (0x7FFFFFFF - at).to(tl.int64)


@triton.jit
def decode_value(key):
    ordered = (key >> 32).to(tl.int32)
    return tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).to(tl.float32, bitcast=True)


@triton.jit(launch_metadata=make_metadata(32, _compute_work))
def likeliest_of_block_kernel(
    logits, keys, peak, mass, inverse,
    VOCAB: tl.constexpr, BLOCKS: tl.constexpr, CANDIDATES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Select the most likely tokens of one block."""
    block = tl.program_id(0)
    row = tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    place = logits + row.to(tl.int64) * VOCAB + at
    value = tl.load(place, mask=at < VOCAB, other=float("-inf")).to(tl.float32) * inverse
    top = tl.max(value, 0)
    tl.store(peak + row * BLOCKS + block, top)
    tl.store(mass + row * BLOCKS + block, tl.sum(tl.exp(value - top), 0))
    likeliest = tl.topk(sort_key(value, at), CANDIDATES)
    tl.store(keys + (row * BLOCKS + block) * CANDIDATES + tl.arange(0, CANDIDATES), likeliest)


@triton.jit(launch_metadata=make_metadata(32, _skip_work))
def likeliest_of_group_kernel(
    keys, fewer, COUNT: tl.constexpr, GROUPS: tl.constexpr, CANDIDATES: tl.constexpr, BLOCK: tl.constexpr
):
    """Select the most likely tokens of one group of blocks."""
    group = tl.program_id(0)
    row = tl.program_id(1)
    at = group * BLOCK + tl.arange(0, BLOCK)
    candidates = tl.load(keys + row * COUNT + at, mask=at < COUNT, other=-(2**63))
    tl.store(
        fewer + (row * GROUPS + group) * CANDIDATES + tl.arange(0, CANDIDATES),
        tl.topk(candidates, CANDIDATES),
    )


@triton.jit(launch_metadata=make_metadata(32, _skip_work))
def draw_kernel(
    fewer, peak, mass, token, cut, step, seed, top_p,
    VOCAB: tl.constexpr, BLOCKS: tl.constexpr, COUNT: tl.constexpr, CANDIDATES: tl.constexpr,
    TOP_K: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Cut the candidates of one row, and draw a token."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    candidates = tl.load(fewer + row * COUNT + at, mask=at < COUNT, other=-(2**63))
    key = tl.topk(candidates, CANDIDATES)
    rank = tl.arange(0, CANDIDATES)
    value = decode_value(key)
    top = tl.max(value, 0)
    limit = tl.minimum(TOP_K, VOCAB) if TOP_K > 0 else tl.minimum(CANDIDATES, VOCAB)
    chance = tl.where(rank < limit, tl.exp(value - top), 0.0)
    if TOP_K > 0:
        total = tl.sum(chance, 0)
    else:
        block = tl.arange(0, PADDED)
        peaks = tl.load(peak + row * BLOCKS + block, mask=block < BLOCKS, other=float("-inf"))
        masses = tl.load(mass + row * BLOCKS + block, mask=block < BLOCKS, other=0.0)
        total = tl.sum(masses * tl.exp(peaks - top), 0)
    chance = chance / total
    before = tl.cumsum(chance, 0) - chance
    token_of = 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)
    noise = gumbel(seed, tl.load(step), row, token_of)
    stays = (rank < limit) & (before < top_p)
    _, chosen = tl.max(tl.where(stays, value - top + noise, float("-inf")), 0, return_indices=True)
    drawn = tl.sum(tl.where(rank == chosen, token_of, 0), 0)
    tl.store(token + row, drawn.to(token.dtype.element_ty))
    if TOP_K == 0 and VOCAB > CANDIDATES:
        missed = tl.sum(chance, 0) < tl.minimum(top_p, 0.9999)
        tl.store(cut + row, tl.load(cut + row) + missed.to(tl.int32))


@triton.jit(launch_metadata=make_metadata(32, _skip_work))
def count_kernel(step):
    """Count one step."""
    tl.store(step, tl.load(step) + 1)


class SamplingScratch(NamedTuple):
    """Intermediate results of the phases, and what stays on the device between steps."""

    best: torch.Tensor  # [rows, blocks]; the peak of a block
    best_at: torch.Tensor
    mass: torch.Tensor
    keys: torch.Tensor  # [rows, blocks, 64]
    fewer: torch.Tensor  # [rows, groups of blocks, 64]
    step: torch.Tensor  # steps drawn so far
    cut: torch.Tensor  # by row: draws whose nucleus was larger than what survives


def allocate_scratch(rows: int, vocab: int, device: torch.device) -> SamplingScratch:
    """Allocate the intermediate results for so many rows of logits."""
    blocks = divide_up(vocab, BLOCK)
    groups = divide_up(blocks, BLOCKS_PER_GROUP)
    numbers = partial(torch.empty, device=device)
    keys = partial(numbers, dtype=torch.int64)
    return SamplingScratch(
        best=numbers(rows, blocks),
        best_at=numbers(rows, blocks, dtype=torch.int32),
        mass=numbers(rows, blocks),
        keys=keys(rows, blocks, MAX_CANDIDATES),
        fewer=keys(rows, groups, MAX_CANDIDATES),
        step=torch.zeros(1, dtype=torch.int32, device=device),
        cut=torch.zeros(rows, dtype=torch.int32, device=device),
    )


def is_supported(temperature: float, top_k: int, vocab: int) -> bool:
    """Return whether the kernels can sample so: any nucleus, at most 64 by count, of a million logits."""
    return temperature == 0 or (
        top_k <= MAX_CANDIDATES and divide_up(vocab, BLOCK * BLOCKS_PER_GROUP) <= BLOCKS_PER_GROUP
    )


def launch(
    logits: torch.Tensor,
    token: torch.Tensor,
    between: SamplingScratch,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> None:
    """Write a token for each row of logits [rows, vocab] to `token`; counters stay on the device."""
    inverse = 1.0 / temperature if temperature else 1.0
    (rows, vocab), blocks = logits.shape, between.best.shape[1]
    if not temperature or (not top_k and top_p >= 1):
        best_of_block_kernel[(blocks, rows)](
            logits, between.best, between.best_at, inverse, seed, between.step,
            VOCAB=vocab, BLOCKS=blocks, NOISE=temperature > 0, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
        best_of_all_kernel[(rows,)](
            between.best, between.best_at, token, between.step,
            BLOCKS=blocks, PADDED=pad_to_power_of_2(blocks), num_warps=4,
        )  # fmt: skip
        return
    groups, candidates = between.fewer.shape[1], MAX_CANDIDATES
    likeliest_of_block_kernel[(blocks, rows)](
        logits, between.keys, between.best, between.mass, inverse,
        VOCAB=vocab, BLOCKS=blocks, CANDIDATES=candidates, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    likeliest_of_group_kernel[(groups, rows)](
        between.keys, between.fewer,
        COUNT=blocks * candidates, GROUPS=groups, CANDIDATES=candidates, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    draw_kernel[(rows,)](
        between.fewer, between.best, between.mass, token, between.cut, between.step, seed, top_p,
        **_build_draw_constants(vocab, blocks, groups, top_k), num_warps=4,
    )  # fmt: skip
    count_kernel[(1,)](between.step, num_warps=1)


def _build_draw_constants(vocab: int, blocks: int, groups: int, top_k: int) -> dict[str, int]:
    count = groups * MAX_CANDIDATES
    return {
        "VOCAB": vocab, "BLOCKS": blocks, "COUNT": count, "CANDIDATES": MAX_CANDIDATES, "TOP_K": top_k,
        "PADDED": pad_to_power_of_2(blocks), "BLOCK": pad_to_power_of_2(count),
    }  # fmt: skip


VOCABULARIES: Final = (("gemma-3-1b", 262144), ("llama-3.2-1b", 128256), ("smollm2-135m", 49152))


def cases() -> Iterator[CompileCase]:
    keys = {"keys": "*i64"}
    for label, vocab in VOCABULARIES:
        blocks, groups = divide_up(vocab, BLOCK), divide_up(vocab, BLOCK * BLOCKS_PER_GROUP)
        of_block = {"VOCAB": vocab, "BLOCKS": blocks, "BLOCK": BLOCK}
        for name, noise in (("greedy", False), ("Gumbel", True)):
            constants: dict[str, int] = {**of_block, "NOISE": noise}
            yield CompileCase(f"{label} {name}", best_of_block_kernel, constants, 4, wide=1)
        of_all = {"BLOCKS": blocks, "PADDED": pad_to_power_of_2(blocks)}
        yield CompileCase(f"{label} best of all", best_of_all_kernel, of_all, 4)
        of_block["CANDIDATES"] = MAX_CANDIDATES
        yield CompileCase(f"{label} likeliest of block", likeliest_of_block_kernel, of_block, 4, keys, wide=1)
        of_group = {
            "COUNT": blocks * MAX_CANDIDATES, "GROUPS": groups, "CANDIDATES": MAX_CANDIDATES, "BLOCK": BLOCK,
        }  # fmt: skip
        yield CompileCase(f"{label} likeliest of group", likeliest_of_group_kernel, of_group, 4, keys, wide=1)
        for top_k in (0, 40):
            constants = _build_draw_constants(vocab, blocks, groups, top_k)
            yield CompileCase(f"{label} draw top_k {top_k}", draw_kernel, constants, 4)
