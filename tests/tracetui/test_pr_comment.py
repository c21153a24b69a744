"""The Markdown of a pull request: its parts, its numbers, and names that stay names."""

import re
from collections import Counter

from capture.run import Run
from tests.tracetui.runs import made, recording
from tracetui.analysis.compare.diff import diff
from tracetui.look import Look
from tracetui.pr_comment import comment

BEFORE = recording("before", noise=1)
AFTER = recording("after", noise=2, slow={"norm": 1.5})


def written(a: Run = BEFORE, b: Run = AFTER) -> str:
    return comment(a, b, Look())


def cells(line: str) -> list[str]:
    return [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_verdict_table_waterfall_findings_and_what_was_compared_in_this_order() -> None:
    text = written()
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "## `before` → `after`", "### Where the time went", "### Findings", "### What was compared",
    ]  # fmt: skip
    words = Counter(diff(BEFORE, AFTER, Look()).rows["verdict"])
    assert words["slower"] == 2
    verdict = text.splitlines()[2]
    assert verdict.startswith("**L1.norm slower +50.") and "**2 slower" in verdict
    assert "of 8 rows; kernel time" in verdict


def test_only_what_changed_stands_open_and_tables_are_whole() -> None:
    text = written()
    open_part, folded = text.split("<details>")[0], text.split("<details>")[1].split("</details>")[0]
    changed = [cells(line)[0] for line in open_part.splitlines() if line.startswith("| `")]
    assert sorted(changed) == ["`L0.norm`", "`L1.norm`"]
    assert sum(line.startswith("| `") for line in folded.splitlines()) == 6
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(cells(line)) for line in table.splitlines()}) == 1


def test_the_sums_are_those_of_the_runs() -> None:
    rows = diff(BEFORE, AFTER, Look()).rows
    change = 100 * (rows["total_b_ns"].sum() / rows["total_a_ns"].sum() - 1)
    assert f"(▲ +{change:.1f}%)" in written()
    assert f"the bars add up to {rows['delta_ns'].sum():,} ns" in written().replace("\\", "")


def test_names_that_mean_something_to_markdown_stay_names() -> None:
    name = "void gemm<a|b>(`x`)*_2"
    text = written(*(made([{"name": name, "dur": d, "lens": "gpu"}]) for d in (10, 30)))
    row = next(line for line in text.splitlines() if "gemm" in line and line.startswith("|"))
    assert cells(row)[0] == "`void gemm<a\\|b>('x')*_2`"


def test_without_samples_every_row_is_shown_and_none_is_called_changed() -> None:
    text = written(*(made([{"name": "gemm", "dur": d, "count": 4, "lens": "gpu"}]) for d in (10, 30)))
    assert "<details>" not in text and "**1 undecided** of 1 rows" in text
    assert "| `gemm` | 10 ns | 30 ns | +20 ns | ▲ +200.0% |" in text
