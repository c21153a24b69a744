"""metallic's printed report: every figure kept, nothing claimed beyond lists that were cut."""

from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders.metallic import analyzer_report as metallic_report
from capture.run import Run
from tests.conftest import FIXTURES, document, seed, shared
from tracetui import report_formats
from tracetui.look import Look
from tracetui.views import load_view

REPORTS = (
    "metallic/report.txt",
    "seed 1",
    "samples/metallic/throughput-fp16-unprofiled.txt",
    "samples/metallic/prof-throughput-q8.txt",
)


def one(path: Path) -> Run:
    (run,) = load(path, cache=False)
    return run


def table(run: Run, name: str) -> pl.DataFrame:
    return run.tables[name]


def test_check_sums() -> None:
    run = one(seed(1))
    types = table(run, "event type summary")["label"].str.extract(r"\(count=(\d+)\)$").cast(pl.Int64)
    assert types.sum() == run.meta["event_count"] == 179_225
    assert table(run, "internal kernel by parent")["count"].to_list() == [7671, 198, 99]
    matmul = table(run, "matmul backend summary").row(0, named=True)
    assert (matmul["count"], matmul["total_ns"]) == (14_065, 2_670_280_000)
    longest = table(run, "gpu kernel durations excluding waits")
    assert (longest.height, longest["total_ns"].sum()) == (20, 1_587_370_000)
    shapes = table(run, "matmul shape backend summary")
    assert shapes.row(2, named=True) == {
        "label": "backend=gemv", "under": "op=matmul | batch=1 | m=1 | n=151936 | k=896 | tA=0 | tB=1",
        "count": 145, "total_ns": 365_770_000, "mean_ns": 2_523_000, "min_ns": 2_134_000,
        "max_ns": 2_781_000, "p95_ns": 2_735_000, "p99_ns": 2_749_000,
    }  # fmt: skip


def test_the_report_says_what_its_recording_says() -> None:
    """The fixture was printed from the recording beside it."""
    recording, printed = (one(FIXTURES / "metallic" / name) for name in ("recording.jsonl", "report.txt"))
    sums = [
        run.events.filter(pl.col("kind") == "kernel", pl.col("lens") == lens)["dur"].sum()
        for run in (recording, printed)
        for lens in ("wall", "gpu", "wait")
    ]
    assert all(abs(a - b) <= 20 * 5_000 for a, b in zip(sums[:3], sums[3:], strict=True))
    types = table(printed, "event type summary")["label"].str.extract(r"\(count=(\d+)\)$").cast(pl.Int64)
    assert types.sum() == printed.meta["event_count"] == recording.tables["event_types"]["count"].sum()


def test_the_kernels_view_shows_kernels_only() -> None:
    run = one(seed(1))
    from tracetui.views import ask

    rows = ask(load_view("kernels"), [run], Look()).rows
    assert (rows.height, rows["count"].sum(), rows["total_ns"].sum()) == (15, 50_327, 8_836_470_000)


def test_lenses_are_apart_and_cut_lists_are_named() -> None:
    run = one(seed(1))
    kernels = run.events.filter(pl.col("kind") == "kernel")
    waits = kernels.filter(pl.col("lens") == "wait")
    assert waits.filter(pl.col("name") == "Unscoped/cb_wait")["dur"].to_list() == [520_650_000]
    assert waits.height == kernels.filter(pl.col("lens") == "gpu").height == 20
    nested = run.events.filter(pl.col("kind") == "span")["name"].cast(pl.String)
    assert {"iteration_total", "forward_step_total", "block_0_total"} <= set(nested)
    cut = {n.id for n in run.log.notices}
    assert {"truncated_gpu_wait_breakdown", "truncated_command_buffer_gpu_timing"} <= cut
    assert "truncated_gpu_kernel_aggregate_by_kernel_type" not in cut


@pytest.mark.parametrize("name", REPORTS)
def test_printed_again_it_is_the_same(name: str) -> None:
    path = document(name)
    again = report_formats.format_report(load_view("sections"), [one(path)], Look()).splitlines()
    kept = [line for line in again if line and not line.startswith("note:")]
    assert kept == [line for line in path.read_text().splitlines() if line]


def test_what_follows_from_the_counts() -> None:
    run = one(shared("samples/metallic/throughput-fp16-unprofiled.txt"))
    assert (run.meta["prompt_tokens"], run.meta["tokens"], run.meta["profiled"]) == (46, 256, False)
    totals = run.events.filter((pl.col("kind") == "kernel") & (pl.col("lens") == run.meta["lens"]))
    assert totals["dur"].sum() == 3_365_330_000 + 2_460_400_000


def test_labels_may_hold_anything() -> None:
    row = metallic_report.parse_statistics(
        "a::b: count=3 | x (C): count=99 | total=250.03ms | avg=2.526ms | min=2.405ms | max=2.781ms | "
        "p95_ms=2.737ms, p99_ms=2.750ms"
    )
    assert row is not None
    assert (row["label"], row["count"], row["total_ns"]) == ("a::b: count=3 | x (C)", 99, 250_030_000)
    assert metallic_report.parse_statistics("sync kernels: no samples") == {"label": "sync kernels"}
    assert metallic_report.parse_statistics("x: count=1 | total=1e3ms") is None
