"""The CS336 report against the figures that it prints."""

import re
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES, document, seed

REPORT = FIXTURES / "cs336" / "report.md"
REPORTS = pytest.mark.parametrize("name", ["cs336/four_models.md", "seed 4"])
HEADINGS = {
    "top_forward": "### Top 5 CUDA Kernels in Forward",
    "first_backward": "### Top CUDA Kernels in Backward",
}


def printed(path: Path, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, by splitting lines only."""
    text = path.read_text()
    section = re.split(r"\n#+ ", text[text.index(heading) + 4 :])[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines[2:]]


def rows(run: Run, **equal: str) -> list[dict[str, object]]:
    return run.events.filter(pl.col(c) == v for c, v in equal.items()).to_dicts()


def test_a_run_for_each_size_and_context() -> None:
    runs = load(document("cs336/four_models.md"))
    stated = {(r.name, r.meta["layers"], r.meta["d_model"], r.meta["heads"], r.meta["context"]) for r in runs}
    assert stated == {
        (f"{size}_ctx{context}", layers, width, heads, context)
        for size, layers, width, heads in (("small", 12, 768, 12), ("medium", 24, 1024, 16))
        for context in (128, 1024)
    }
    (flag,) = [n for n in runs[0].log.notices if n.id == "backward_other_thread"]
    assert flag.count == 4 and "miss autograd's kernels" in flag.message


def test_twenty_runs_with_their_models() -> None:
    runs = load(seed(4))
    sizes = {"small": (12, 768, 12), "medium": (24, 1024, 16), "large": (36, 1280, 20)}
    sizes |= {"xl": (48, 1600, 25), "2.7B": (32, 2560, 32)}
    assert {r.name for r in runs} == {f"{s}_ctx{c}" for s in sizes for c in (128, 256, 512, 1024)}
    assert len(runs) == 20
    for run in runs:
        meta = run.meta
        assert (meta["layers"], meta["d_model"], meta["heads"]) == sizes[meta["size"]]
        assert run.name == f"{meta['size']}_ctx{meta['context']}"
        assert run.log.dropped == 0


@REPORTS
@pytest.mark.parametrize(("phase", "table"), [("forward", "top_forward"), ("backward", "first_backward")])
def test_kernels_equal_the_printed_cells(phase: str, table: str, name: str) -> None:
    path = document(name)
    expected: dict[str, list[tuple[object, ...]]] = {}
    for file, kernel, count, total, _ in printed(path, HEADINGS[table]):
        std, kernel = kernel.split(None, 1)
        ns = int(Decimal(total) * 10**6)
        expected.setdefault(file, []).append((kernel, int(count), ns, round(float(std))))
    for run in load(path):
        kernels = rows(run, kind="kernel", phase=phase)
        got = [(re.sub(r" \[\d\]$", "", str(k["name"])), k["count"], k["dur"], k["std"]) for k in kernels]
        assert got == expected.get(run.name, [])
        assert not any(re.match(r"[\d.]+ ", str(k["name"])) for k in kernels)
        assert len({k["name"] for k in kernels}) == len(kernels)


@REPORTS
def test_forward_timings_equal_the_printed_cells(name: str) -> None:
    path = document(name)
    by_file = {cells[0]: cells for cells in printed(path, "### Forward Pass Timings")}
    for run in load(path):
        _, nsys, python, _, share = by_file[run.name]
        (forward,) = rows(run, name="forward_pass")
        assert (forward["kind"], forward["lens"]) == ("span", "wall")
        assert forward["dur"] == Decimal(nsys) * 10**6
        (timed,) = rows(run, name="forward_pass, timed in Python")
        assert timed["dur"] == Decimal(python) * 10**6
        (counter,) = rows(run, name="percentage")
        assert counter["value"] == float(share)


@REPORTS
def test_softmax_and_fractions_equal_the_printed_cells(name: str) -> None:
    path = document(name)
    softmax = {cells[0]: cells for cells in printed(path, "### Softmax vs")}
    fractions = {cells[0]: cells for cells in printed(path, "### Matrix Multiplication vs")}
    for run in load(path):
        (s,) = rows(run, category="softmax", kind="span")
        (m,) = rows(run, name="attn_scores + final_matmul + output_proj")
        assert s["dur"] == Decimal(softmax[run.name][1]) * 10**6
        assert m["dur"] == Decimal(softmax[run.name][2]) * 10**6
        names = ("matmul_forward_%", "matmul_train_%", "other_forward_%", "other_train_%")
        got = [rows(run, name=n)[0]["value"] for n in names]
        assert got == [float(c) for c in fractions[run.name][1:]]


def test_tables_are_kept_whole_and_the_backward_ones_flagged() -> None:
    run = load(seed(4))[0]
    assert {name: t.height for name, t in run.tables.items()} == {
        "models": 5,
        "forward": 20,
        "first_forward": 20,
        "first_backward": 18,
        "top_forward": 100,
        "fractions": 20,
        "softmax": 20,
    }
    (flag,) = [n for n in run.log.notices if n.id == "backward_other_thread"]
    assert flag.count == 18
    assert "miss autograd's kernels" in flag.message


def test_small_report() -> None:
    (run,) = load(REPORT)
    kernels = [(k["name"], k["count"], k["dur"], k["std"]) for k in rows(run, kind="kernel", phase="forward")]
    cut = "void cutlass::Kernel2<cutlass_80_tens..."
    assert kernels == [
        (f"{cut} [1]", 8, 500_000, 12),
        (f"{cut} [2]", 4, 250_000, 3),
        ("softmax_kernel", 2, 125_000, None),
    ]
    assert run.meta["context"] == 128
    assert run.log.read == 7


def test_rows_that_do_not_fit_their_header_are_counted(tmp_path: Path) -> None:
    lines = (FIXTURES / "cs336/four_models.md").read_text().splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("|"))
    path = tmp_path / "report.md"
    path.write_text("\n".join([*lines[: last + 1], "| one cell |", *lines[last + 1 :]]))
    whole, torn = load(FIXTURES / "cs336/four_models.md")[0].log, load(path)[0].log
    assert (torn.read - whole.read, torn.dropped - whole.dropped) == (1, 1)
