"""Files of many ranks made by hand, whose sums can be added up in plain Python."""

import json
import random
from pathlib import Path
from typing import Any

from capture.native.schema import seal

NAMES = ("attention", "ffn_down", "rmsnorm", "all_reduce")


def durations(rank: int, steps: int = 6, slow: str = "") -> list[dict[str, Any]]:
    """The kernels of a rank, drawn by its number; rank 5 is slow in ffn_down, every rank in `slow`."""
    draw = random.Random(rank)
    rows, clock = [], 0
    for step in range(steps):
        for name in NAMES:
            for _ in range(3):
                dur = (
                    draw.randrange(1_000, 90_000)
                    * (3 if (rank, name) == (5, "ffn_down") else 1)
                    * (2 if name == slow else 1)
                )
                rows.append({"name": name, "t": clock, "dur": dur, "step": step})
                clock += dur
    return rows


def fleet(folder: Path, ranks: int, steps: int = 6, slow: str = "") -> Path:
    """A folder with a native file a rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        meta = {"rank": rank, "world_size": ranks, "device": "paper"}
        lines: list[dict[str, Any]] = [
            {"kind": "run", "schema": 1, "id": f"r{rank}", "name": "job", "meta": meta}
        ]
        lines += [
            {"kind": "kernel", "phase": "decode", "lens": "gpu", **row}
            for row in durations(rank, steps, slow)
        ]
        (folder / f"rank{rank:03}.jsonl").write_bytes(b"".join(map(seal, lines)))
    return folder


def written(rows: Any) -> str:
    """A frame as text, to compare all of it."""
    return json.dumps(rows.to_dicts(), default=str)
