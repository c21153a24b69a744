"""What is right about some profiles, read from them without the product: by words, json and sqlite3."""

import gzip
import json
import re
import sqlite3
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from tests.conftest import seed, shared
from tracetui.samples import find_sample


def cells(path: Path, heading: str) -> list[dict[str, str]]:
    """The rows of the Markdown table that follows a heading, by column."""
    lines = iter(path.read_text().partition(heading)[2].splitlines())
    table = [line for line in lines if line.strip().startswith("|")]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table]
    width = len(rows[0])
    body = [row for row in rows[2:] if len(row) == width]
    return [dict(zip(rows[0], row, strict=True)) for row in body]


@cache
def mlc() -> dict[str, dict[str, str]]:
    """Seed 0: the first table of totals, by kernel."""
    path = seed(0)
    first: dict[str, dict[str, str]] = {}
    for row in cells(path, "### Kernel Execution Statistics"):
        first.setdefault(row["Kernel Name"], row)
    return first


def ns(milliseconds: str) -> int:
    return round(float(milliseconds.replace(",", "")) * 1e6)


def text(number: int) -> str:
    return seed(number).read_text()


def found(number: int, pattern: str) -> str:
    """The first thing that a pattern finds in a seed."""
    match = re.search(pattern, text(number))
    assert match
    return match[1]


def doppler_total(label: str) -> float:
    """Seed 2: ms of a label, added over every printed report."""
    return sum(float(ms) for ms in re.findall(rf"^{label} +([\d.]+) +[\d.]+$", seed(2).read_text(), re.M))


def cs336(file: str) -> dict[str, str]:
    """Seed 4: the kernel that takes most of a forward pass."""
    rows = cells(seed(4), "### Top CUDA Kernels in Forward Pass by Model Configuration")
    return next(row for row in rows if row["file"] == file)


@cache
def recorded(name: str) -> dict[str, Any]:
    """A sample: ns and launches by name of kernel, and its steps, from its lines."""
    plan: dict[int, dict[str, Any]] = {}
    time: dict[str, int] = defaultdict(int)
    count: dict[str, int] = defaultdict(int)
    steps, context = 0, 0
    for text in gzip.decompress(find_sample(name).read_bytes()).decode().splitlines():
        line = json.loads(text) if text.strip() else {"kind": ""}
        if line["kind"] == "plan":
            plan = {op["id"]: op for op in line["ops"]}
        if line["kind"] == "columns":
            for op, dur in zip(line["op"], line["dur"], strict=True):
                if plan[op]["lens"] == "wall":  # other stopwatches cover the same time
                    time[plan[op]["name"]] += dur
                    count[plan[op]["name"]] += 1
        if line["kind"] == "step" and line.get("phase") == "decode":
            steps, context = steps + 1, max(context, line["context"])
    return {"time": time, "count": count, "steps": steps, "context": context}


@cache
def nsys() -> tuple[str, int, int]:
    """The kernel of the H100 file that takes most: name, launches, ns."""
    path = shared("samples/nsys/h100_2gpu_1s.sqlite")
    asked = (
        "SELECT s.value, count(*), sum(k.end - k.start) AS ns FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1 ORDER BY ns DESC LIMIT 1"
    )
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        return file.execute(asked).fetchone()  # type: ignore[no-any-return]


@cache
def bert() -> tuple[str, int, int]:
    """The kernel of the BERT trace that takes most: name, launches, ns; and only kernels count."""
    path = shared("samples/chrome_trace/bert-small-h100.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    time: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for event in events:
        if event.get("cat") == "kernel":
            time[event["name"]] += event["dur"]
            count[event["name"]] += 1
    name = max(time, key=time.__getitem__)
    return name, count[name], round(time[name] * 1000)
