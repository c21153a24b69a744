"""The Markdown of a pull request: its parts, its numbers, and names that stay names."""

import re
from collections import Counter

from capture.load_runs import load
from capture.run import Run
from tests.tracetui.runs import made, recording
from tracetui.compare.diff import compare_runs
from tracetui.look import Look
from tracetui.pr_comment import format_comment
from tracetui.samples import find_sample

BEFORE = recording("before", noise=1)
AFTER = recording("after", noise=2, slow={"norm": 1.5})


def written(a: Run = BEFORE, b: Run = AFTER) -> str:
    return format_comment((a, b), Look())


def cells(line: str) -> list[str]:
    return [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_the_decision_stands_open_and_the_rest_is_folded() -> None:
    text = written()
    lines = text.splitlines()
    assert lines[0] == "## `before` → `after`"
    assert re.match(r"- \*\*(SLOWER|undecided): decode step .*%", lines[2])
    words = Counter(compare_runs((BEFORE, AFTER), Look()).rows["verdict"])
    assert words["slower"] == 2 and any(f"{words['slower']} slower" in line for line in lines[:8])
    assert re.findall("<summary>(.*)</summary>", text) == [
        "Rows", "Where the time went, and findings", "What was compared",
    ]  # fmt: skip
    assert len(lines) <= 60


def test_the_comment_of_a_real_pair_fits_a_screen_of_a_review() -> None:
    runs = [load(find_sample(name))[0] for name in ("decode", "slowed")]
    assert len(written(*runs).splitlines()) <= 60


def test_only_what_changed_is_listed_and_tables_are_whole() -> None:
    text = written()
    changed = [cells(line)[0] for line in text.splitlines() if line.startswith("| `L")]
    assert sorted(changed) == ["`L0.norm`", "`L1.norm`"]
    assert "6 rows are the same or undecided" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(cells(line)) for line in table.splitlines()}) == 1


def test_nothing_from_a_file_is_alive() -> None:
    """Names with an image, a link, a mention, an address, an issue and HTML, four hundred letters long."""
    evil = "![x](https://e.example/t.png) @octocat #12 www.e.example <img src=x> " + "k" * 400
    files = [
        made([{"name": evil, "op": "op", "dur": d * (1 + i % 3), "step": i, "phase": evil, "tokens": 1,
               "context": i, "kind": "kernel", "lens": "gpu"} for i in range(12)]) for d in (1000, 9000)
    ]  # fmt: skip
    text = written(*files)
    bare = re.sub(r"`[^`]*`|```.*?```", "", text, flags=re.DOTALL)
    for alive in ("https://", "@octocat", "#12", "www.", "<img"):
        assert alive not in bare, alive
    assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\(", bare)
    assert max(len(name) for name in re.findall(r"`([^`\n]*)`", text)) <= 60


def test_the_sums_are_those_of_the_runs() -> None:
    rows = compare_runs((BEFORE, AFTER), Look()).rows
    change = 100 * (rows["total_b_ns"].sum() / rows["total_a_ns"].sum() - 1)
    assert f"(▲ +{change:.1f}%)" in written()
    assert f"the bars sum to {rows['delta_ns'].sum():,} ns" in written().replace("\\", "")


def test_names_that_mean_something_to_markdown_stay_names() -> None:
    name = "void gemm<a|b>(`x`)*_2"
    text = written(*(made([{"name": name, "dur": d, "lens": "gpu"}]) for d in (10, 30)))
    row = next(line for line in text.splitlines() if "gemm" in line and line.startswith("|"))
    assert cells(row)[0] == "`void gemm<a\\|b>('x')*_2`"


def test_without_samples_every_row_is_shown_and_none_is_called_changed() -> None:
    text = written(*(made([{"name": "gemm", "dur": d, "count": 4, "lens": "gpu"}]) for d in (10, 30)))
    assert "the same or undecided" not in text and "1 undecided of 1 rows" in text
    assert "| `gemm` | 10 ns | 30 ns | +20 ns | ▲ +200.0% |" in text
