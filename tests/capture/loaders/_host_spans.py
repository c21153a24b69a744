"""Spans of a Chrome trace and their self times, read and counted in plain Python."""

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

Span = tuple[Any, int, int, str]  # thread, start and end in ns, name


def read_events(path: Path) -> list[dict[str, Any]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.suffix == ".jsonl":
        return [json.loads(line, parse_float=Decimal) for line in raw.splitlines()]
    document = json.loads(raw, parse_float=Decimal)
    return document["traceEvents"] if isinstance(document, dict) else document


def read_spans(path: Path, is_read: Callable[[dict[str, Any]], bool] = lambda event: True) -> list[Span]:
    """The spans of a file in the order of their begins, without the profiler's window and steps."""
    spans, begun = [], defaultdict(list)
    for event in filter(is_read, read_events(path)):
        thread, name = (event.get("pid"), event.get("tid")), str(event.get("name"))
        if event.get("cat") == "Trace" or re.match(r"ProfilerStep#|iter \d", name):
            continue
        if event.get("ph") in ("X", "B"):
            start = round(event["ts"] * 1000)
            spans.append([thread, start, start + round(event.get("dur", 0) * 1000), name])
        if event.get("ph") == "B":
            begun[thread].append(spans[-1])
        elif event.get("ph") == "E":
            begun[thread].pop()[2] = round(event["ts"] * 1000)
    return [(thread, start, end, name) for thread, start, end, name in spans]


def sum_self_times(spans: list[tuple[int, int, str]]) -> Counter[str]:
    """Walk along one thread with a stack: each stretch goes to the name that began last and still runs."""
    changes = sorted({t for start, end, _ in spans for t in (start, end)})
    waiting = sorted(spans, key=lambda span: (span[0], -span[1]))[
        ::-1
    ]  # equal ones: the first begun is outer
    stack: list[tuple[int, int, str]] = []
    sums = Counter[str]()
    for now, later in pairwise(changes):
        while waiting and waiting[-1][0] <= now:
            stack.append(waiting.pop())
        stack = [span for span in stack if span[1] > now]
        if stack:
            sums[stack[-1][2]] += later - now
    return sums
