"""Requests to a model server and their tokens, with latencies."""

from typing import Final

import polars as pl

from capture.loaders.requests.request_rows import REQUESTS, TOKENS
from capture.run import Run

_TOKEN_SCHEMA: Final = {
    "request": pl.String, "client": pl.String, "token": pl.Int64, "tokens": pl.Int64, "start_ns": pl.Int64,
    "at_ns": pl.Int64, "wait_ns": pl.Int64, "is_first": pl.Boolean, "itl_ns": pl.Int64,
}  # fmt: skip


def build_token_table(run: Run) -> pl.DataFrame:
    """Return a row per arrival of tokens, in order: its number, start and end in Unix ns, and the wait.

    `itl_ns` is the wait per token; null for the first tokens of a request, whose wait is its TTFT.
    """
    requests = run.tables[REQUESTS].unique("request", keep="first", maintain_order=True)
    if TOKENS not in run.tables:
        return pl.DataFrame(schema=_TOKEN_SCHEMA)
    tokens = run.tables[TOKENS].filter(pl.col("at_ns").is_not_null(), pl.col("tokens") > 0)
    tokens = tokens.join(requests.select("request", "sent_ns", "client"), on="request", how="inner")
    tokens = tokens.sort("request", "at_ns", "token", maintain_order=True)
    start = pl.col("at_ns").shift(1).over("request")
    tokens = tokens.with_columns(is_first=start.is_null(), start_ns=pl.coalesce(start, "sent_ns"))
    tokens = tokens.with_columns(wait_ns=pl.col("at_ns") - pl.col("start_ns"))
    itl = (pl.col("wait_ns") / pl.col("tokens")).round().cast(pl.Int64)
    return tokens.with_columns(itl_ns=pl.when(~pl.col("is_first")).then(itl)).select(list(_TOKEN_SCHEMA))


def build_request_table(run: Run, tokens: pl.DataFrame) -> pl.DataFrame:
    """Return a row per request in the order of sending, with the latencies of its tokens."""
    requests = run.tables[REQUESTS].unique("request", keep="first", maintain_order=True).sort("sent_ns")
    later = tokens.filter(~pl.col("is_first"))
    latencies = later.group_by("request").agg(
        itl_ns=(pl.col("wait_ns").sum() / pl.col("tokens").sum()).round().cast(pl.Int64),
        itl_p99_ns=pl.col("itl_ns").quantile(0.99, "nearest").cast(pl.Int64),
        worst_ns=pl.col("wait_ns").max(),
    )
    table = requests.join(latencies, on="request", how="left", maintain_order="left")
    of_server = ((pl.col("decode_ns") / (pl.col("tokens") - 1)).round()).cast(pl.Int64, strict=False)
    itl = pl.coalesce("itl_ns", pl.when(pl.col("tokens") > 1).then(of_server))
    return table.with_columns(at_ns=pl.col("sent_ns") - pl.col("sent_ns").min(), itl_ns=itl)
