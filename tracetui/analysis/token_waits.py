"""Waits for the tokens of requests, and why one came late: what client, steps and other requests did.

A cause needs evidence: a time that covers at least half of the delay. Without it the cause is null.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

import polars as pl

from capture.classify.step_annotations import parse_step_annotation
from capture.loaders.requests.request_rows import REQUESTS, STALLS, TOKENS
from capture.merge_ranks import find_epoch_offset
from capture.native.schema import PROFILE_MARK
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.selection import select_kind
from tracetui.analysis.time.step_table import list_marked_times

SLOW_FACTOR: Final = 2.0  # times the usual wait for a token, from which one is slow
COVERED_SHARE: Final = 0.5  # of a delay that a cause must cover
SAME_STEP_SHARE: Final = 0.2  # of a delay that a large prefill must explain if both ended at once
EDGE_SHARE: Final = 0.05  # of a wait, at its ends: tokens there belong to the steps before and after
MAX_CHANCE: Final = 0.01  # that waits as long meet the ends of large prompts, below which these cost time
UPPER_QUARTILE: Final = 0.75  # of the delays by large prompts: some of the others got their tokens before
MAX_SLOW_TOKENS: Final = 5_000  # slowest first, whose causes are searched
SAME_TIME_SHARE: Final = 0.25  # of the usual wait: tokens of one step come within this time
SAME_TIME_MAX_NS: Final = 5_000_000
LARGE_PROMPT_SHARE: Final = 0.5  # of the longest prompt: these tell what prefill costs per token

CLIENT, PROFILE, PREFILL, STEP, BETWEEN = "client", "profiling", "prefill", "slow step", "between steps"
_TOKEN_SCHEMA: Final = {
    "request": pl.String, "client": pl.String, "token": pl.Int64, "tokens": pl.Int64, "start_ns": pl.Int64,
    "at_ns": pl.Int64, "wait_ns": pl.Int64, "is_first": pl.Boolean, "itl_ns": pl.Int64,
}  # fmt: skip


class ServedStep(NamedTuple):
    """A step of the server, in Unix ns."""

    number: int
    start: int
    end: int
    phase: str | None
    prefill_tokens: int

    def measure_overlap(self, start: int, end: int) -> int:
        """Return the time of the step that lies between two times, in ns."""
        return max(0, min(self.end, end) - max(self.start, start))


class Prefill(NamedTuple):
    """A request's prefill by the clock of its client: from what is known of its start to its first token."""

    request: str
    start: int
    end: int
    prompt_tokens: int


class TokenCause(NamedTuple):
    """Why one token came late: the word, the sentence, and the step that held it."""

    cause: str | None
    why: str
    step: int | None


def compute_typical_wait(tokens: pl.DataFrame) -> float:
    """Return the usual time per token in ns: the median of the means of the requests; 0 without tokens.

    Not the median wait: tokens that come in bursts have one of microseconds.
    """
    later = tokens.filter(~pl.col("is_first"))
    means = later.group_by("request").agg(mean=pl.col("wait_ns").sum() / pl.col("tokens").sum())["mean"]
    return float(means.median() or 0)  # type: ignore[arg-type]


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


def find_slow_tokens(tokens: pl.DataFrame) -> pl.DataFrame:
    """Return the tokens that took more than SLOW_FACTOR times the usual wait, slowest first."""
    later = tokens.filter(~pl.col("is_first"))
    slow = later.filter(pl.col("wait_ns") > SLOW_FACTOR * compute_typical_wait(tokens))
    return slow.sort("wait_ns", "request", descending=[True, False]).head(MAX_SLOW_TOKENS)


class CauseFinder:
    """Finds the causes of late tokens in one run."""

    def __init__(self, run: Run, requests: pl.DataFrame, tokens: pl.DataFrame) -> None:
        offset = find_epoch_offset(run)
        later = tokens.filter(~pl.col("is_first"))
        self.typical_ns = compute_typical_wait(tokens)
        self._same_time_ns = min(SAME_TIME_MAX_NS, SAME_TIME_SHARE * self.typical_ns)
        self._steps = [] if offset is None else _list_steps(run, offset)
        self._step_starts = [step.start for step in self._steps]
        self._stalls = run.tables[STALLS].rows() if STALLS in run.tables else []
        self._profiles = [] if offset is None else _list_profiles(run, offset)
        self._arrivals = later["at_ns"].sort()
        self._prefills = _list_prefills(requests)
        self._large_prompt = LARGE_PROMPT_SHARE * max((p.prompt_tokens for p in self._prefills), default=0)
        self._prefill_ends = [prefill.end for prefill in self._prefills]
        self._ns_per_token = self._estimate_prefill_cost(later)

    def find_cause(self, request: str, start: int, end: int) -> TokenCause:
        """Return why a token of a request, awaited from start to end, came late."""
        excess = end - start - self.typical_ns
        needed = COVERED_SHARE * excess
        steps = self._select_steps(start, end)
        held = max(steps, key=lambda s: (s.measure_overlap(start, end), s.number), default=None)
        held = held if held and held.measure_overlap(start, end) else None
        number = held.number if held else None
        if _sum_overlap(self._profiles, start, end) >= needed:
            return TokenCause(PROFILE, "the server was being profiled by tracetui", number)
        cause = self._blame_steps(steps, start, end, needed) if steps else None
        cause = cause or self._blame_prefill(request, start, end, excess, number)
        if cause is None and _sum_overlap(self._stalls, start, end) >= needed:
            return TokenCause(CLIENT, "the client itself stood still", number)
        return cause or TokenCause(None, self._describe_others(start, end), number)

    def _select_steps(self, start: int, end: int) -> list[ServedStep]:
        """Select the steps between two times, and the one before."""
        first = max(0, bisect_right(self._step_starts, start) - 1)
        last = bisect_left(self._step_starts, end)
        return self._steps[first:last]

    def _blame_steps(
        self, steps: Sequence[ServedStep], start: int, end: int, needed: float
    ) -> TokenCause | None:
        """Return the step, or the time between two, that covers the delay; None if there is none."""
        filled = [step for step in steps if step.prefill_tokens and step.measure_overlap(start, end)]
        if sum(step.measure_overlap(start, end) for step in filled) >= needed and filled:
            step = max(filled, key=lambda s: s.prefill_tokens)
            owner = self._find_owner(step)
            of_request = f" of request {owner.request}" if owner else ""
            what = f"step {step.number} held a prefill of {step.prefill_tokens:,} tokens{of_request}"
            return TokenCause(PREFILL, what, step.number)
        longest = max(steps, key=lambda s: s.measure_overlap(start, end))
        if longest.measure_overlap(start, end) - self.typical_ns >= needed:
            took = units.format_duration(longest.end - longest.start)
            what = f"step {longest.number} ({longest.phase or 'no phase'}) took {took}"
            return TokenCause(STEP, what, longest.number)
        idle = [(after.start - before.end, after.number) for before, after in pairwise(steps)]
        widest, number = max(idle, default=(0, 0))
        if widest < max(1, needed):
            return None
        what = f"no step ran for {units.format_duration(widest)} before step {number}"
        return TokenCause(BETWEEN, what, number)

    def _find_owner(self, step: ServedStep) -> Prefill | None:
        """Find the request whose prefill a step held: the one whose first token came at its end."""
        tolerance = self._same_time_ns + self.typical_ns
        candidates = [p for p in self._prefills if p.start < step.end <= p.end + tolerance]
        return min(candidates, key=lambda p: abs(p.end - step.end), default=None)

    def _blame_prefill(
        self, request: str, start: int, end: int, excess: float, step: int | None
    ) -> TokenCause | None:
        """Return the prefills of other requests meanwhile, if they are long enough to explain the delay."""
        needed = COVERED_SHARE * excess
        others = self._select_prefills(request, start, end, needed)
        largest = max(others, key=lambda p: p.prompt_tokens, default=None)
        expected = self._ns_per_token * sum(p.prompt_tokens for p in others)
        if largest is None:
            return None
        large = [p for p in others if p.prompt_tokens >= self._large_prompt]
        ends_with_it = any(abs(p.end - end) <= self._same_time_ns for p in large)
        if expected < (SAME_STEP_SHARE * excess if ends_with_it else needed):
            return None
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        what = f"request {largest.request} with a prompt of {largest.prompt_tokens:,} tokens{more} was in"
        return TokenCause(PREFILL, f"{what} prefill, by the clients' clock", step)

    def _select_prefills(self, request: str, start: int, end: int, needed: float) -> list[Prefill]:
        """Select the prefills of other requests that may have taken so much of a wait."""
        first = bisect_right(self._prefill_ends, start - self._same_time_ns)
        return [
            p
            for p in self._prefills[first:]
            if p.request != request
            and self._can_delay(p)
            and min(end, p.end) - max(start, self._limit_start(p)) >= needed - self._same_time_ns
        ]

    def _can_delay(self, prefill: Prefill) -> bool:
        """Whether such a prompt usually makes a token of others slow."""
        return self._ns_per_token * prefill.prompt_tokens >= (SLOW_FACTOR - 1) * self.typical_ns

    def _limit_start(self, prefill: Prefill) -> float:
        """Return the earliest time at which a server may have computed a prefill: a queue precedes it."""
        return max(prefill.start, prefill.end - 2 * self._ns_per_token * prefill.prompt_tokens)

    def _describe_others(self, start: int, end: int) -> str:
        """Describe whether other requests got tokens meanwhile: a fact, where the cause is unknown."""
        margin = int(max(self._same_time_ns, EDGE_SHARE * (end - start)))
        low, high = self._arrivals.search_sorted(pl.Series([start + margin, end - margin]))
        number = max(0, high - low)
        if not number:
            return "no request got a token meanwhile"
        return f"other requests got {number:,} token{'s' * (number != 1)} meanwhile"

    def _sum_stalls(self, waits: pl.DataFrame) -> pl.Series:
        """Return the time in which the client stood still in each wait, in ns."""
        import numpy as np

        stalls = sorted(self._stalls)
        instants = [at for stall in stalls for at in stall] or [0]
        lengths = [length for start, end in stalls for length in (0, end - start)] or [0]
        stalled = [np.interp(waits[c], instants, np.cumsum(lengths)) for c in ("start_ns", "at_ns")]
        return pl.Series(stalled[1] - stalled[0])

    def _estimate_prefill_cost(self, later: pl.DataFrame) -> float:
        """Estimate the ns per token of a large prompt by which tokens of others come later than elsewhere."""
        import numpy as np

        longest = max((p.prompt_tokens for p in self._prefills), default=0)
        large = [p for p in self._prefills if p.prompt_tokens >= LARGE_PROMPT_SHARE * longest]
        points = [
            (p.request, p.end - int(self._same_time_ns), p.prompt_tokens) for p in large[:1000] if longest
        ]
        if not points:
            return 0.0
        schema = {"owner": pl.String, "point": pl.Int64, "size": pl.Int64}
        ends = pl.DataFrame(points, schema=schema, orient="row").sort("point")
        is_own = self._sum_stalls(later) >= COVERED_SHARE * later["wait_ns"]  # of the client, not of prefills
        waits = later.filter(~is_own).sort("start_ns")
        pairs = ends.lazy().join_where(
            waits.lazy(),
            pl.col("start_ns") < pl.col("point"),
            pl.col("at_ns") >= pl.col("point"),
        )
        others = pairs.filter(pl.col("owner") != pl.col("request")).collect()
        begin, end = waits["start_ns"].to_numpy(), waits["at_ns"].to_numpy()
        is_elsewhere = np.ones(waits.height, dtype=bool)
        for p in large[:1000]:
            is_elsewhere &= (end < p.start) | (begin > p.end)
        elsewhere = waits["wait_ns"].filter(is_elsewhere)
        once = others.group_by("request", "start_ns", "at_ns", "wait_ns").agg(pl.col("size").sum())
        if _compute_chance(once, elsewhere) > MAX_CHANCE:
            return 0.0
        usual_ns = max(self.typical_ns, _compute_wait_at_any_time(elsewhere))
        more = (pl.col("wait_ns") - usual_ns) / pl.col("size")
        delay = once.select(more.quantile(UPPER_QUARTILE)).item()
        usual_prefill = median((p.end - p.start) / p.prompt_tokens for p in large if p.prompt_tokens)
        return max(0.0, min(usual_prefill, float(delay or 0)))


def _compute_chance(waits: pl.DataFrame, elsewhere: pl.Series) -> float:
    """Return the chance that instants at random meet as many long waits as these did, by those elsewhere.

    Long are those of at least half of their upper quartile; waits at one time are one instant. 1 if unknown.
    """
    from scipy.special import bdtrc

    if waits.is_empty() or not elsewhere.sum():
        return 1.0
    long = COVERED_SHARE * float(waits["wait_ns"].quantile(UPPER_QUARTILE) or 0)
    instants, hits, last = 0, 0, 0
    for start, at in waits.sort("at_ns").select("start_ns", "at_ns").iter_rows():
        if start >= last:
            instants, hits, last = instants + 1, hits + (at - start >= long), at
    share = float(elsewhere.filter(elsewhere >= long).sum()) / float(elsewhere.sum())
    return float(bdtrc(hits - 1, instants, share)) if hits else 1.0


def _compute_wait_at_any_time(waits: pl.Series) -> float:
    """Return the median of the wait that a random instant meets: long waits meet more of them."""
    ordered = waits.sort()
    passed = int((ordered.cum_sum() < ordered.sum() / 2).sum())
    return float(ordered[passed]) if ordered.len() else 0.0


def _sum_overlap(spans: Sequence[tuple[int, int]], start: int, end: int) -> int:
    return sum(max(0, min(stop, end) - max(begin, start)) for begin, stop in spans)


def _list_steps(run: Run, offset: int) -> list[ServedStep]:
    """List the steps with a start, in order; of several ranks the whole time of each."""
    columns = ("step", "t", "dur", "name", "phase")
    if not (run.has("step") and run.has("t") and run.has("dur")):
        return []
    rows = select_kind(run, "step", [c for c in columns if run.has(c)]).drop_nulls(["step", "t", "dur"])
    missing = [pl.lit(None).alias(c) for c in columns if c not in rows.columns]
    rows = (
        rows.with_columns(*missing, end=pl.col("t") + pl.col("dur"))
        .group_by("step")
        .agg(
            pl.col("t").min(),
            pl.col("end").max(),
            pl.col("name", "phase").first().cast(pl.String),
        )
    )
    return [
        ServedStep(step, t + offset, end + offset, phase, _count_prefill_tokens(name))
        for step, t, end, name, phase in rows.sort("t").iter_rows()
    ]


def _count_prefill_tokens(name: str | None) -> int:
    """Return the number of tokens of prompts that a step computed, by its annotation; 0 if it has none."""
    annotation = parse_step_annotation(name) if name else None
    if annotation is None or annotation.prefill is None:
        return 0
    return annotation.prefill.queries or 0


def _list_profiles(run: Run, offset: int) -> list[tuple[int, int]]:
    """List the profiles of a watched server, by the marks at their begin and end."""
    return [(begin + offset, end + offset) for begin, end in list_marked_times(run, PROFILE_MARK)]


def _list_prefills(requests: pl.DataFrame) -> list[Prefill]:
    """List the prefills in the order of their ends; the start is exact only if the server reports it."""
    end = pl.col("sent_ns") + pl.col("ttft_ns")
    waited = pl.col("sent_ns") + pl.coalesce("queue_ns", pl.lit(0))
    start = pl.max_horizontal(waited, end - pl.coalesce("prefill_ns", "ttft_ns"))
    rows = requests.select("request", start.alias("start"), end.alias("end"), "prompt_tokens").drop_nulls()
    return [Prefill(*row) for row in rows.sort("end").iter_rows()]
