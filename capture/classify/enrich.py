"""Fills layer, op, category, phase and lens from names, where the source left them open."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import polars as pl

_LAYER: Final = re.compile(
    r"(?:\bL|\blayers?[._/ \[]?|\bblocks?[._/ ]|\bblk\.|\bh\.|\btransformer[._]h[._])(\d{1,4})(?!\d)"
)

_TIMED: Final = ("kernel", "span")
_TELLING: Final = 1 << 12  # characters of a name that are looked at

# name pattern → (op, category); the first that fits decides. An empty op leaves the role open.
_RULES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), op, category)
    for pattern, op, category in (
        (r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_kernel|c10d::", "", "comm"),
        (r"^mem(cpy|set)\b|^Memcpy|^Memset|hipMemcpy|Copy(HostTo|DeviceTo)|CopyBuffer|fallback_blit", "", "copy"),
        (r"lm_?head|output_projection", "lm_head", "matmul"),
        (r"qkv_?(proj|gemv|fused)|attn_qkv|QkvFused", "attn.qkv", "matmul"),
        (r"\bq_proj|attn_q\b", "attn.q", "matmul"),
        (r"\bk_proj|attn_k\b", "attn.k", "matmul"),
        (r"\bv_proj|attn_v\b", "attn.v", "matmul"),
        (r"\bo_proj|out_proj|attn_output|output_proj", "attn.out", "matmul"),
        (r"ffn_gate_up|gate_up", "mlp.gate_up", "matmul"),
        (r"(ffn|mlp)[._]?gate|gate_proj", "mlp.gate", "matmul"),
        (r"(ffn|mlp)[._]?up|up_proj", "mlp.up", "matmul"),
        (r"(ffn|mlp)[._]?(down|output)|down_proj", "mlp.down", "matmul"),
        (r"fused_ffn|mlp_swiglu|swiglu_mlp", "mlp", "matmul"),
        (r"rotary|\brope|_rope|apply_rope", "attn.rope", "elementwise"),
        (r"kv_?cache|kv_?append|transpose_append|reshape_and_cache|kv_repeat|repeat_kv|kv_rearrange", "attn.kv", "copy"),
        (r"(rms|layer|batch|group)_?norm|add_norm|attn_norm|mlp_norm|final_norm|\bnorm\b", "norm", "norm"),
        (
            r"flash|fmha|sdpa|scaled_dot_product|paged_?attention|attention|attn_(fwd|bwd|core|scores)|"
            r"paged_kv|ragged_kv|merge_state|BatchDecode|BatchPrefill",
            "attn.core",
            "attention",
        ),
        (r"sample|argmax|top_?k|top_?p|multinomial|gumbel", "sample", "other"),
        (r"softmax", "", "softmax"),
        (r"embed|\bgather|(\b|_)take\d*_kernel|index_select", "embed", "copy"),
        (r"gemm|gemv|matmul|cutlass|cublas|nvjet|\bmm\b|addmm|bmm|linear|Cijk_|_xmma_|s\d+gemm|dot_kernel", "", "matmul"),
        (r"silu|gelu|relu|sigmoid|swiglu|activation|act_and_mul|\bact_fn", "mlp.act", "elementwise"),
        (r"reduce|\bsum\b|\bmean\b|argmin|cumsum|scan_kernel", "", "reduce"),
        (
            r"elementwise|residual|\badd|\bmul|\bscale\b|copy_kernel|CatArray|FillFunctor|triton_poi|cast|"
            r"\bsplit|\bconvert|transpose",
            "",
            "elementwise",
        ),
        (r"cb_wait|dep_wait|synchronize|_wait\b|\bwait\b|eventSync", "", "wait"),
    )
)  # fmt: skip

_PHASES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), phase)
    for pattern, phase in (
        (r"prefill|prompt.?processing", "prefill"),
        (r"decode(?!r)|generation.?loop", "decode"),
        (r"backward|autograd::engine", "backward"),
        (r"optimizer", "optimizer"),
        (r"forward_pass|\bforward\b", "forward"),
    )
)


def layer_of(name: str) -> int | None:
    found = _LAYER.search(name[:_TELLING])
    return int(found[1]) if found else None


@lru_cache(maxsize=1 << 14)
def role_of(name: str) -> tuple[str | None, str]:
    """The op and the category that a name speaks of."""
    for pattern, op, category in _RULES:
        if pattern.search(name[:_TELLING]):
            return op or None, category
    return None, "other"


def phase_of(text: str) -> str | None:
    return next((phase for pattern, phase in _PHASES if pattern.search(text[:_TELLING])), None)


def enrich(events: pl.DataFrame) -> pl.DataFrame:
    """The frame with its open columns filled; what the source stated stands."""
    if not events["kind"].is_in(list(_TIMED)).any():
        return events
    events = _fill(events, _roles(events, _TIMED))
    if "path" in events.columns:
        events = _fill(events, _scopes(events))
    return events


def _roles(events: pl.DataFrame, kinds: Iterable[str]) -> pl.DataFrame:
    """name → layer, op, category for the names of timed rows."""
    names = (
        events.lazy()
        .filter(pl.col("kind").is_in(list(kinds)))
        .select(pl.col("name").unique())
        .collect()["name"]
        .cast(pl.String)
        .drop_nulls()
        .to_list()
    )
    roles = [role_of(n) for n in names]
    return pl.DataFrame(
        {
            "name": pl.Series(names, dtype=pl.String).cast(pl.Categorical()),
            "layer": pl.Series([layer_of(n) for n in names], dtype=pl.Int32),
            "op": pl.Series([r[0] for r in roles], dtype=pl.String).cast(pl.Categorical()),
            "category": pl.Series([r[1] for r in roles], dtype=pl.String).cast(pl.Categorical()),
        }
    )


def _scopes(events: pl.DataFrame) -> pl.DataFrame:
    """path → layer and phase."""
    paths = events["path"].unique().cast(pl.String).drop_nulls().to_list()
    return pl.DataFrame(
        {
            "path": pl.Series(paths, dtype=pl.String).cast(pl.Categorical()),
            "layer": pl.Series([layer_of(p) for p in paths], dtype=pl.Int32),
            "phase": pl.Series([phase_of(p) for p in paths], dtype=pl.String).cast(pl.Categorical()),
        }
    )


def _fill(events: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """What `known` says by its first column, wherever the events say nothing."""
    key, *columns = known.columns
    columns = [c for c in columns if known[c].null_count() < known.height]
    if not columns or known.is_empty():
        return events
    timed = events["kind"].is_in(list(_TIMED))
    at = standing(known[key], events[key])
    guesses = {c: pl.when(timed).then(known[c].gather(at)) for c in columns}
    return events.with_columns(
        (pl.coalesce(c, guess) if c in events.columns else guess).alias(c) for c, guess in guesses.items()
    )


def standing(known: pl.Series, column: pl.Series) -> pl.Series:
    """Where each value of a categorical column stands among the distinct known ones.

    Found by the codes of the values: a join would hash every row.
    """
    codes, asked = known.to_physical(), column.to_physical()
    highest = max((top for top in (codes.max(), asked.max()) if isinstance(top, int)), default=-1)
    places = (
        pl.select(code=pl.int_range(highest + 1, dtype=pl.UInt32))
        .join(codes.to_frame("code").with_row_index("at"), on="code", how="left", maintain_order="left")
    )["at"]  # fmt: skip
    return places.gather(asked)
