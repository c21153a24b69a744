"""Requests: their time in the queue, in prefill and per token, and why tokens came late."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.loaders.requests.request_rows import REQUESTS
from capture.run import Run
from tracetui import units
from tracetui.analysis.kernels import compute_total_table
from tracetui.analysis.token_waits import (
    SLOW_FACTOR,
    CauseFinder,
    build_request_table,
    build_token_table,
    find_slow_tokens,
)
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, find_cursor_row

_TAIL: Final = 0.99
_CAUSES: Final = {
    "request": pl.String, "token": pl.Int64, "cause": pl.String, "why": pl.String, "step": pl.Int64,
}  # fmt: skip
UNKNOWN: Final = "unknown"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per request; of the request in focus one row per token."""
    run = runs[0]
    tokens = build_token_table(run)
    requests = build_request_table(run, tokens)
    slow = _find_causes(run, requests, tokens)
    entered = look.focus_values.get("request")
    if entered is not None:
        return _answer_tokens(run, tokens.filter(pl.col("request") == str(entered)), slow, str(entered))
    notes = [_describe_requests(requests, tokens), *_describe_tail(run, tokens, slow)]
    table = requests.join(_summarise_slow(slow), on="request", how="left", maintain_order="left")
    return Answer(
        table.select(c for c in _REQUEST_COLUMNS if table[c].null_count() < table.height or c in _ALWAYS),
        tuple(notes),
        key=("request",),
        leading_notes=len(notes),
    )


def _find_causes(run: Run, requests: pl.DataFrame, tokens: pl.DataFrame) -> pl.DataFrame:
    """Return the slow tokens, slowest first, each with its cause, the sentence and the step."""
    slow = find_slow_tokens(tokens)
    finder = CauseFinder(run, requests, tokens)
    rows = [
        (request, token, *finder.find_cause(request, start, end))
        for request, token, start, end in slow.select("request", "token", "start_ns", "at_ns").iter_rows()
    ]
    causes = pl.DataFrame(rows, schema=_CAUSES, orient="row")
    return slow.join(causes, on=["request", "token"], how="left", maintain_order="left")


def _summarise_slow(slow: pl.DataFrame) -> pl.DataFrame:
    """Return per request the number of slow tokens, and the cause of the slowest."""
    cause = pl.col("cause").fill_null(UNKNOWN).first()
    return slow.group_by("request", maintain_order=True).agg(slow=pl.len(), cause=cause)


def _describe_requests(requests: pl.DataFrame, tokens: pl.DataFrame) -> str:
    failed = requests.filter(pl.col("tokens").fill_null(0) == 0).height
    parts = [f"{requests.height:,} request{'s' * (requests.height != 1)}"]
    parts += [f"{failed:,} without a token"] if failed else []
    total = requests["tokens"].sum()
    parts += [f"{total:,} tokens"] if total else []
    span = (requests["sent_ns"] + requests["total_ns"]).max()
    if total and isinstance(span, int) and span > (start := int(requests["sent_ns"].min() or 0)):  # type: ignore[arg-type]
        parts.append(f"{units.format_speed(float(total) / ((span - start) / 1e9))} tok/s")
    parts += _describe_quantiles("TTFT", requests["ttft_ns"].drop_nulls())
    itl = tokens["itl_ns"].drop_nulls()
    parts += _describe_quantiles("ITL", itl if itl.len() else requests["itl_ns"].drop_nulls())
    return ", ".join(parts)


def _describe_quantiles(name: str, values: pl.Series) -> list[str]:
    """Describe the median and the tail of a latency."""
    if values.is_empty():
        return []
    low, high = (units.format_duration(values.quantile(q, "nearest") or 0) for q in (0.5, _TAIL))
    return [f"{name} p50 {low}, p99 {high}"]


def _describe_tail(run: Run, tokens: pl.DataFrame, slow: pl.DataFrame) -> list[str]:
    """Split the time of the tokens above the 99th percentile by cause."""
    itl = tokens["itl_ns"].drop_nulls()
    if itl.is_empty():
        return ["the log has no times of tokens: no cause of slow tokens"]
    edge = itl.quantile(_TAIL, "nearest") or 0
    tail = tokens.filter(pl.col("itl_ns") >= edge).join(
        slow.select("request", "token", "cause"), on=["request", "token"], how="left"
    )
    shares = tail.group_by(pl.col("cause").fill_null(UNKNOWN)).agg(pl.col("wait_ns").sum(), n=pl.len())
    total = int(shares["wait_ns"].sum())
    rows = shares.sort("wait_ns", "cause", descending=[True, False]).iter_rows()
    parts = [f"{cause} {units.format_share(ns / total)} ({n:,})" for cause, ns, n in rows] if total else []
    words = f"the {tail.height:,} token{'s' * (tail.height != 1)} at or above the p99 of ITL by cause"
    return [*([f"{words}: {', '.join(parts)}"] if parts else []), *_describe_slowest(run, slow)]


def _describe_slowest(run: Run, slow: pl.DataFrame) -> list[str]:
    """Describe the slowest token: how long it took, why, and what most of its step was."""
    if slow.is_empty():
        return [f"no token took more than {SLOW_FACTOR:g} times the usual wait"]
    row = slow.row(0, named=True)
    text = f"slowest: token {row['token']:,} of request {row['request']}"
    return [
        f"{text}, {units.format_duration(row['wait_ns'])}; {_explain(row)}{_describe_step(run, row['step'])}"
    ]


def _explain(row: dict[str, object]) -> str:
    return str(row["why"]) if row["cause"] else f"cause unknown: {row['why']}"


def _describe_step(run: Run, step: int | None) -> str:
    """Describe which op takes most of a step; empty if the run has no ops of it."""
    if step is None or not run.has("op"):
        return ""
    table = compute_total_table(run, Look(group="op", window=(step, step)))
    table = table.drop_nulls("op") if "op" in table.columns else table
    if table.is_empty() or "share" not in table.columns:
        return ""
    row = table.sort("total_ns", descending=True).row(0, named=True)
    return f": {row['op']} {units.format_share(row['share'])}" if row["share"] else ""


def _answer_tokens(run: Run, tokens: pl.DataFrame, slow: pl.DataFrame, request: str) -> Answer:
    """Return the tokens of one request, with the step and cause of each slow one."""
    slow = slow.filter(pl.col("request") == request)
    table = tokens.join(
        slow.select("token", "cause", "why", "step"), on="token", how="left", maintain_order="left"
    )
    sent = tokens["start_ns"].min() if tokens.height else None
    table = table.with_columns(
        at_ns=pl.col("at_ns") - sent,
        cause=pl.when(pl.col("why").is_not_null()).then(pl.col("cause").fill_null(UNKNOWN)),
    )
    notes = [f"request {request}: {tokens['tokens'].sum():,} tokens, {slow.height:,} of them slow"]
    notes += _describe_slowest(run, slow) if slow.height else []
    columns = [c for c in _TOKEN_COLUMNS if table[c].null_count() < table.height or c in _ALWAYS]
    return Answer(table.select(columns), tuple(notes), key=("token",), leading_notes=len(notes))


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the request of the row under the cursor, or the step of its token, if one is known."""
    row = find_cursor_row(answer, look)
    if row is None:
        return ()
    if "token" not in row:
        return (("request", row["request"]),)
    return (("step", row["step"]),) if row.get("step") is not None else ()


_ALWAYS: Final = ("request", "token", "at_ns")
_REQUEST_COLUMNS: Final = (
    "request", "client", "at_ns", "queue_ns", "prefill_ns", "ttft_ns", "itl_ns", "itl_p99_ns", "worst_ns",
    "decode_ns", "total_ns", "prompt_tokens", "tokens", "slow", "cause", "outcome",
)  # fmt: skip
_TOKEN_COLUMNS: Final = ("token", "tokens", "at_ns", "wait_ns", "itl_ns", "step", "cause", "why")

VIEW = View(
    "requests",
    "Requests",
    answer,
    needs=frozenset({f"table:{REQUESTS}"}),
    not_merged_because="requests are of one server",
    find_focus=find_focus,
    own_focus="request",
    columns=(
        "request", "ttft_ns", "itl_ns", "worst_ns", "cause", "tokens", "prompt_tokens", "queue_ns",
        "prefill_ns", "itl_p99_ns", "slow", "total_ns", "decode_ns", "at_ns", "client", "outcome",
    ),
)  # fmt: skip
