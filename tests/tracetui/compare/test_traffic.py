"""Bytes that explain a change of time, and bytes that do not: by value."""

from typing import Any

import polars as pl
import pytest

from capture.import_log import Log
from capture.run import Run, build_run
from tracetui.compare.causes import compute_traffic_changes
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.row_matching import normalise_name, parse_fusions
from tracetui.compare.words.change_findings import list_findings
from tracetui.look import Look

MB = 1 << 20


def run(prefix: str, steps: int = 10, **ops: tuple[int, int]) -> Run:
    """Nine decode steps and a prefill; each op with its bytes and ns, the step in the middle as given."""
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        phase, context = ("decode", 10 + step) if step else ("prefill", 10)
        late = (step - steps // 2) * 1000 if step else 10**9
        for op, (moved, dur) in ops.items():
            rows.append({"kind": "kernel", "name": f"{prefix}{op}", "op": op, "phase": phase, "step": step,
                         "bytes": float(moved), "dur": dur + late})  # fmt: skip
        total = sum(dur + late for _, dur in ops.values())
        rows.append({"kind": "step", "name": "step", "phase": phase, "step": step, "tokens": 1,
                     "context": context, "dur": total})  # fmt: skip
    return build_run("run", {"model": "m"}, pl.DataFrame(rows, infer_schema_length=None), Log())


BEFORE = run("", **{"mlp.down": (16 * MB, 800_000), "attn.core": (4 * MB, 200_000)})


def said(after: Run, before: Run = BEFORE) -> list[tuple[str, str, str | None]]:
    found = list_findings(compare_runs((before, after), Look()), Look())
    return [row for row in found.iter_rows() if " moves " in row[1]]


def test_bytes_explain_what_changed_with_them() -> None:
    after = run("dequant+", **{"mlp.down": (4 * MB, 210_000), "attn.core": (4 * MB, 200_000)})
    assert said(after) == [
        ("cause", "a decode step moves 20.00 MiB → 8.000 MiB (0.40×) and takes 1.000 ms → 410.0 µs (0.41×): "
         "the bytes explain the change, at 21.0 → 20.5 GB/s", None),
        ("cause", "mlp.down moves 16.00 MiB → 4.000 MiB (0.25×) and takes 800.0 µs → 210.0 µs (0.26×): "
         "the bytes explain the change, at 21.0 → 20.0 GB/s", "mlp.down"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ns", "verdict"),
    [(700_000, "the bytes alone would make it 0.40×"), (900_000, "the bytes do not explain the change")],
)
def test_bytes_that_do_not_explain_are_said_once(ns: int, verdict: str) -> None:
    after = run("", **{"mlp.down": (4 * MB, ns), "attn.core": (4 * MB, 200_000)})
    ((kind, sentence, row),) = said(after)
    assert (kind, row) == ("bytes", None)
    assert verdict in sentence


def test_the_same_bytes_explain_nothing() -> None:
    after = run("", **{"mlp.down": (16 * MB, 400_000), "attn.core": (4 * MB, 200_000)})
    assert [kind for kind, *_ in said(after)] == ["same work"]  # half the time, no cause among the bytes


def test_a_run_that_tells_no_bytes_is_left_alone() -> None:
    silent = build_run("run", {}, BEFORE.events.drop("bytes"), Log())
    assert (
        compute_traffic_changes(BEFORE, silent, Look())
        == compute_traffic_changes(silent, BEFORE, Look())
        == []
    )


def test_rows_of_a_quantised_run_match_by_name() -> None:
    after = run("dequant+", **{"mlp.down": (4 * MB, 210_000), "attn.core": (4 * MB, 200_000)})
    rows = compare_runs((BEFORE, after), Look(phase="decode")).rows
    assert set(rows["match"]) == {"normalised"}
    assert normalise_name("dequant+ffn_gate_up") == "ffn_gate_up"
    assert parse_fusions("dequant+ffn_gate_up") == ("dequantise fused",)


def test_slower_at_the_same_bytes_is_said_with_both_rates() -> None:
    before, after = (
        run("", 30, **{"mlp.down": (16 * MB, dur), "attn.core": (4 * MB, 200_000)})
        for dur in (800_000, 1_200_000)
    )
    assert said(after, before) == [
        ("same work", "mlp.down moves the same 16.00 MiB per decode step in both runs, at 21.0 → 14.0 GB/s: "
         "its speed changed, not its work", "mlp.down"),
    ]  # fmt: skip
