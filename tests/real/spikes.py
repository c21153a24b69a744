"""Spikes planted into a served stream of short requests, and what the view `requests` says of them.

python -m tests.real.spikes URL FOLDER SPIKES QUIET

Three clients of `tracetui load` ask with short prompts. A client of our own sends a long prompt now and then:
it knows by its own clock from when to when its prefill held the others up. A token that waited through the
end of such a prefill must have the cause `prefill`, by the name of that request; and the wait must be as long
as an observer got no token, a client of our own that is in no log. In QUIET runs nothing is planted, so that
no prefill may be blamed.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import polars as pl

from capture.load_runs import load_all
from capture.loaders.requests.request_rows import REQUESTS
from tests.real.load import run_before_others, stream_completion
from tracetui.analysis.token_waits import (
    CauseFinder,
    build_request_table,
    build_token_table,
    compute_typical_wait,
    find_slow_tokens,
)
from tracetui.look import Look
from tracetui.views import load_view

PROMPT_TOKENS: Final = 1900
PAUSE_S: Final = 0.8  # between two spikes, growing a little so that they meet other moments
QUIET_S: Final = 6.0
SHORT_TOKENS: Final = 8  # of the other prompts: their prefill takes about as long as a step of decoding
EDGE_NS: Final = 1_000_000  # tokens of one step come within this time


class Spike(NamedTuple):
    """A planted request by its own clock, in Unix ns."""

    name: str
    sent: int
    end: int


class Outcome(NamedTuple):
    """What was said of one run: a row per spike that held others up, and the causes that nothing has."""

    rows: list[dict[str, Any]]
    invented: list[str]
    causes: Counter[str]


def plant(url: str, out: Path, spikes: int) -> tuple[list[Spike], list[float]]:
    """Load the server and plant so many long prompts, or none for QUIET_S.

    Return them, and when tokens came to an observer: a client of our own that is in no log.
    """
    planted, lines, numbers = list[Spike](), list[str](), random.Random()  # prompts new to the server
    command = [sys.executable, "-m", "tracetui", "load", url, "--quiet", "-o", str(out), "--clients", "3"]
    command += ["--for", "60m", "--requests", "100000", "--prompt-tokens", str(SHORT_TOKENS)]
    netloc, over, seen = urlsplit(url).netloc, threading.Event(), list[float]()
    to_unix_s = time.time() - time.monotonic()

    def observe() -> None:
        while not over.is_set():
            prompt = [numbers.randrange(100, 1000) for _ in range(SHORT_TOKENS)]
            seen.extend(to_unix_s + at for at in stream_completion(netloc, prompt, 256)[1:])

    observer = threading.Thread(target=observe)
    observer.start()
    with subprocess.Popen(command) as clients:
        while not out.exists() or out.read_bytes().count(b"token_s") < 6:
            time.sleep(0.2)
        time.sleep(0.0 if spikes else QUIET_S)
        for number in range(spikes):
            time.sleep(PAUSE_S + 0.02 * (number % 25))
            prompt = [numbers.randrange(100, 1000) for _ in range(PROMPT_TOKENS)]
            sent, *came = (to_unix_s + at for at in stream_completion(netloc, prompt, 1))
            planted.append(Spike(f"p{number}", int(sent * 1e9), int(came[0] * 1e9)))
            times = [at - sent for at in came]
            line = {"request": f"p{number}", "sent_s": sent, "token_s": times, "prompt_tokens": PROMPT_TOKENS}
            lines.append(json.dumps(line))
        clients.send_signal(signal.SIGINT)
    over.set()
    observer.join()
    out.with_suffix(".planted").write_text("".join(f"{line}\n" for line in lines))
    return planted, seen


def judge(out: Path, planted: list[Spike], seen: list[float]) -> Outcome:
    """Compare what the view says of each slow token with what was planted."""
    logs = [str(out), *([str(out.with_suffix(".planted"))] if planted else [])]
    (run,) = load_all([out], cache=False, client_logs=logs)
    sent = dict(run.tables[REQUESTS].select("request", "sent_ns").iter_rows())
    tokens = build_token_table(run)
    late = find_slow_tokens(tokens)
    usual = compute_typical_wait(tokens)
    finder = CauseFinder(run, build_request_table(run, tokens), tokens)
    slow: list[dict[str, Any]] = []
    for row in late.iter_rows(named=True):
        cause, why, _ = finder.find_cause(row["request"], row["start_ns"], row["at_ns"])
        at_ns = row["at_ns"] - sent[row["request"]]
        slow.append({**row, "of": row["request"], "at_ns": at_ns, "cause": cause or "unknown", "why": why})
    if slow:  # the view says the same of the request whose token was slowest
        shown = load_view("requests").answer([run], Look(focus=(("request", slow[0]["of"]),))).rows
        assert shown.filter(pl.col("token") == slow[0]["token"])["cause"].to_list() == [slow[0]["cause"]]
    verdicts: list[dict[str, Any]] = []
    invented: list[str] = []
    for spike in planted:
        held = [row for row in slow if _is_held(row, sent[row["of"]], spike)]
        if held:
            verdicts.append(_judge_spike(spike, held, _measure_gap(seen, spike), usual))
    for row in slow:
        end = sent[row["of"]] + row["at_ns"]
        near = [s.name for s in planted if s.sent <= end and end - row["wait_ns"] <= s.end + EDGE_NS]
        if row["cause"] == "prefill" and not any(f"request {name} " in row["why"] for name in near):
            invented.append(f"token {row['token']} of {row['of']}: {row['why']}")
    return Outcome(verdicts, invented, Counter(row["cause"] for row in slow))


def _is_held(row: dict[str, Any], sent: int, spike: Spike) -> bool:
    """Whether a token waited through the end of a planted prefill, and mostly for it."""
    end = sent + row["at_ns"]
    start = end - row["wait_ns"]
    is_mostly = 2 * (spike.end - max(start, spike.sent)) > row["wait_ns"]
    return bool(start < spike.end - EDGE_NS <= end and is_mostly and row["of"] != spike.name)


def _measure_gap(seen: list[float], spike: Spike) -> float:
    """Return for how long the observer got no token around a planted prefill, in ns; 0 if it asked no one."""
    gaps = [(int(a * 1e9), int(b * 1e9)) for a, b in pairwise(seen)]
    return max((b - a for a, b in gaps if a < spike.end and b > spike.sent), default=0)


def _judge_spike(spike: Spike, held: list[dict[str, Any]], gap: float, usual: float) -> dict[str, Any]:
    """Return whether cause and milliseconds are right in all tokens that a spike held up."""
    named = [row["cause"] == "prefill" and f"request {spike.name} " in row["why"] for row in held]
    wait = median(row["wait_ns"] for row in held)
    return {
        "spike": spike.name, "took_ms": (spike.end - spike.sent) / 1e6, "seen_ms": gap / 1e6,
        "said_ms": wait / 1e6, "named": all(named), "right_ms": abs(wait - gap) <= 0.1 * gap + usual,
        "why": sorted({f"{row['cause']}: {row['why']}" for row in held}),
    }  # fmt: skip


def main(url: str, folder: str, spikes: str, quiet: str) -> None:
    """Plant, judge and print the figures."""
    run_before_others()
    outs = [Path(folder, "spikes.jsonl")] if int(spikes) else []
    for out in [*outs, *(Path(folder, f"quiet{n}.jsonl") for n in range(int(quiet)))]:
        planted, seen = plant(url, out, int(spikes) if out in outs else 0)
        rows, invented, causes = judge(out, planted, seen)
        right = sum(row["named"] and row["right_ms"] for row in rows)
        if planted:
            print(f"{len(planted)} spikes, {len(rows)} held others up; cause and ms right in {right}")
        for row in rows:
            if not (row["named"] and row["right_ms"]):
                print("   ", json.dumps(row))
        print(f"{out.name}: slow tokens by cause {dict(causes)}; {len(invented)} invented")
        print("".join(f"    {line}\n" for line in invented[:8]), end="", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
