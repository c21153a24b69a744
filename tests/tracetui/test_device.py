"""`--device`: a report and a comparison of one device of several."""

import json
from pathlib import Path

from tests.tracetui.in_process import tracetui


def recording(path: Path, slower: int = 1) -> Path:
    """Two devices in twenty steps: gpu0 takes 1,000 ns in each, gpu1 4,000, or so many times that."""
    rows: list[dict[str, object]] = [
        {"kind": "kernel", "name": "gemm", "t": 100_000 * step, "dur": dur, "step": step, "track": track}
        for step in range(20)
        for track, dur in (("gpu0/stream7", 1_000), ("gpu1/stream7", 4_000 * slower))
    ]  # fmt: skip
    head = {"kind": "run", "schema": 1, "name": "toy", "meta": {"model": "toy"}}
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in (head, *({"lens": "gpu", **row} for row in rows)))
    )
    return path


def test_a_report_and_a_diff_are_of_the_device_that_is_named(tmp_path: Path) -> None:
    a, b = recording(tmp_path / "a.jsonl"), recording(tmp_path / "b.jsonl", slower=2)
    for device, total in (("gpu0", 20_000), ("gpu1", 80_000)):
        actual = tracetui("report", "kernels", a, "--device", device, "--format", "json")
        assert [row["total_ns"] for row in json.loads(actual.stdout)["rows"]] == [total]
    changes = {}
    for device in ("gpu0", "gpu1"):
        actual = tracetui("diff", a, b, "--device", device, "--format", "json")
        changes[device] = [row["delta_ns"] for row in json.loads(actual.stdout)["rows"]]
    assert changes == {"gpu0": [0], "gpu1": [80_000]}


def test_a_device_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    actual = tracetui("report", "summary", recording(tmp_path / "a.jsonl"), "--device", "gpu7")
    assert actual.returncode == 2 and "gpu0, gpu1" in actual.stderr
