"""A table has at most 1,000 rows, and says so; --limit and the formats for programs have all."""

import json
from pathlib import Path

import pytest

from tests.tracetui.in_process import tracetui


@pytest.fixture
def many_names(tmp_path: Path) -> str:
    path = tmp_path / "names.json"
    events = [{"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 10 * i, "dur": 5} for i in range(1500)]
    path.write_text(json.dumps({"traceEvents": [e | {"name": f"gemm_{i}_"} for i, e in enumerate(events)]}))
    return str(path)


@pytest.mark.parametrize(
    ("words", "rows"), [((), 1000), (("--limit", "1200"), 1200), (("--format", "csv"), 1500)]
)
def test_rows_of_a_report_are_limited_in_a_table_only(
    many_names: str, words: tuple[str, ...], rows: int
) -> None:
    result = tracetui("report", "kernels", many_names, "--no-cache", *words)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert sum(line.startswith("gemm_") for line in lines) == rows
    notes = [line for line in lines if line.startswith("note: ")]
    assert (f"note: {rows} of 1500 rows shown" in notes) == (rows < 1500)
    assert any("--limit N" in note for note in notes) == (not words)
