"""The head line at four widths, and the moment's figures worked out on paper."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from msgspec import structs

from capture.run import Run
from tests.tracetui.runs import MS, made
from tests.tracetui.ui.hand import decode
from tracetui.analysis.vitals import compute_vitals
from tracetui.glyphs import count_cells
from tracetui.ui.main_screen import fit_notes
from tracetui.ui.pages.bands import draw_header
from tracetui.ui.run_info import describe_run

ROOF = {"source": "measured", "read_bytes_per_s": 40e9}


def counter(name: str, *values: float, track: str | None = None) -> list[dict[str, Any]]:
    return [
        {"kind": "counter", "name": name, "t": at, "value": value, "track": track}
        for at, value in enumerate(values)
    ]


def engine_run(*counters: list[dict[str, Any]], dropped: int = 0, **meta: Any) -> Run:
    """A prefill, and two decode steps of 10 ms in each of which 100 MB are read in 8 ms."""
    rows: list[dict[str, Any]] = []
    for step, phase in enumerate(("prefill", "decode", "decode")):
        rows.append({"kind": "step", "name": phase, "t": step * 10 * MS, "dur": 10 * MS, "step": step,
                     "phase": phase, "tokens": 1, "context": 100 + step})  # fmt: skip
        rows.append({"kind": "kernel", "name": "gemv", "t": step * 10 * MS, "dur": 8 * MS, "step": step,
                     "phase": phase, "lens": "wall", "bytes": 1e8 if phase == "decode" else 9e9})  # fmt: skip
    about = {"model": "gemma-3-1b", "weights": "random(0)", "device": "Some CPU", "dtype": "bfloat16"}
    return made([*rows, *(row for each in counters for row in each)], **{**about, "roof": ROOF, **meta})


BUSY = (
    counter("host_cpu_usage", 0.0, 97.0, 98.0, 99.0, 98.0, 98.0),
    counter("cpu_frequency", 3490.0),
    counter("process_mem_used", 2.0 * (1 << 30)),
    counter("capture cost", 0.4),
)


def head(run: Run, width: int, writer: str = "live", **more: Any) -> str:
    line = draw_header(run, describe_run(run), None, width, writer=writer, **more)
    text = "".join(span.text for span in line)
    assert count_cells(text) == width
    return text


def test_the_moment_s_figures() -> None:
    now = compute_vitals(engine_run(*BUSY))
    assert now.context == 102
    assert now.read_share == pytest.approx(2e8 / 20e-3 / 40e9)
    assert now.memory == 2.0 * (1 << 30) and now.capture_pct == 0.4
    assert now.gauges == {"cpu": ((98.0, "%"), (3490.0, "MHz"))}  # of the last five, not of the first


def test_what_is_not_known_is_not_zero() -> None:
    now = compute_vitals(engine_run(roof=None))
    assert (now.read_share, now.read_roof, now.memory, now.capture_pct, now.gauges) == (None,) * 4 + ({},)
    assert compute_vitals(made([{"name": "a", "dur": 5}])).context is None


def test_a_gap_in_what_was_told_of_bytes_leaves_no_share() -> None:
    gap = {"kind": "kernel", "name": "x", "t": 1, "dur": 1, "step": 1, "phase": "decode", "lens": "wall"}
    assert compute_vitals(engine_run([gap])).read_share is None


def test_where_kernels_tell_no_bytes_the_weights_are_what_is_read() -> None:
    """Two passes of two tokens each over 150 MB in 20 ms."""
    gap = {"kind": "kernel", "name": "x", "t": 1, "dur": 1, "step": 1, "phase": "decode", "lens": "wall"}
    run = engine_run([gap], bytes_per_token=150e6)
    rows = run.events.with_columns(tokens=pl.col("tokens") * 2, batch=pl.when(kind="step").then(pl.lit(2)))
    two = made(rows.to_dicts(), **run.meta)
    assert compute_vitals(two).read_share == pytest.approx(2 * 150e6 / 20e-3 / 40e9)
    odd = {"bytes_per_token": "many"}
    assert compute_vitals(engine_run([gap], **odd)).read_share is None


def test_of_several_gpus_the_first_and_what_it_does_not_tell_is_missing() -> None:
    run = engine_run(
        counter("gpu_usage", 90.0, track="gpu 0"), counter("gpu_usage", 10.0, track="gpu 1"),
        counter("gpu_power", 512.0, track="gpu 0"), counter("gpu_mem_used", 3e9, track="gpu 0"), *BUSY,
    )  # fmt: skip
    now = compute_vitals(run)
    assert now.gauges["gpu"] == ((90.0, "%"), (None, "MHz"), (512.0, "W"), (None, "°C"))
    assert now.memory == 3e9
    assert "gpu 90% – MHz 512 W – °C" in head(run, 200)


def test_a_counter_in_another_unit_is_not_read_as_the_usual_one() -> None:
    """Some sources tell the memory and the clock as a share of what there is."""
    actual = {"process_mem_used": (86.0, "%"), "gpu_mem_used": (3e9, "B"), "cpu_frequency": (22.0, "%"),
            "host_cpu_usage": (7.0, "%")}  # fmt: skip
    rows = [[{"kind": "counter", "name": n, "t": 0, "value": v, "unit": u}] for n, (v, u) in actual.items()]
    assert compute_vitals(engine_run(*rows)).memory == 3e9
    now = compute_vitals(engine_run(rows[0], rows[2], rows[3]))
    assert now.memory is None and now.gauges == {"cpu": ((7.0, "%"), (None, "MHz"))}
    assert "mem" not in head(engine_run(rows[0]), 200, writer="")


def test_two_runs_are_told_by_their_files_and_by_what_differs() -> None:
    def of(file: str, **meta: Any) -> Run:
        run = engine_run(**meta)
        return replace(run, log=structs.replace(run.log, source=f"/runs/{file}.jsonl"))

    pair = [of("old"), of("new", dtype="float16")]
    asked = [(run, describe_run(run)) for run in pair]
    text = head(pair[1], 120, writer="", displayed=asked)
    assert text.startswith(
        " old.jsonl → new.jsonl · 100 → 100 tok/s by wall time · weights=random · gemma-3-1b · "
    )
    assert "bfloat16 → float16" in text and "ctx" not in text and "run 2" not in text
    assert " old.jsonl → new.jsonl · " in head(pair[1], 44, writer="", displayed=asked)
    assert head(pair[1], 80, writer="", displayed=asked * 2).startswith(" 4 runs · weights=random")


def test_two_speeds_are_written_alike() -> None:
    runs = [decode("fast"), decode("slow")]
    speeds = 47580.4, 998.76
    asked = [
        (run, structs.replace(describe_run(run), tokens_per_s=speed))
        for run, speed in zip(runs, speeds, strict=True)
    ]
    assert " · 47,580 → 998.8 tok/s" in head(runs[0], 120, writer="", displayed=asked)


def test_on_a_wide_screen_everything_stands() -> None:
    text = head(engine_run(*BUSY), 200, position="run 2 of 3")
    assert text.startswith(
        " made · 100 tok/s by wall time · run 2 of 3 · weights=random · gemma-3-1b · ctx 102 · "
    )
    for part in (
        "25% of 40.00 GB/s",
        "mem 2.000 GiB",
        "cpu 98% 3,490 MHz",
        "capture 0.4%",
        "wall times",
        "3 steps",
    ):
        assert f" · {part}" in text
    assert text.endswith(" live ")


@pytest.mark.parametrize(
    ("width", "there", "gone"),
    [
        (140, ("100 tok/s by wall time", "25% of 40.00 GB/s", "cpu 98% 3,490 MHz"), ("3 steps",)),
        (120, ("100 tok/s", "weights=random", "ctx 102", "25% of 40.00 GB/s", "cpu 98%"), ("by wall",)),
        (80, ("100 tok/s", "weights=random", "gemma-3-1b", "ctx 102"), ("cpu 98%", "wall time")),
        (40, ("made", "100 tok/s"), ("ctx 102",)),
        (20, ("100 tok/s",), ("weights",)),
    ],
)
def test_the_least_important_goes_first_and_the_speed_last(
    width: int, there: tuple[str, ...], gone: tuple[str, ...]
) -> None:
    text = head(engine_run(*BUSY), width)
    assert all(part in text for part in there) and not any(part in text for part in gone)
    assert "100 tok/s by wall time" in head(engine_run(*BUSY), 100, writer="")


def test_badges_give_way_to_the_speed() -> None:
    run = engine_run(*BUSY, truncated=True, profiled=True, guess=["layers"])
    assert "100 tok/s" in head(run, 40, writer="engine died") and "engine died" in head(
        run, 40, writer="engine died"
    )
    assert all(badge in head(run, 120) for badge in ("live", "cut short", "profiled", "guess"))


def test_a_live_run_says_what_is_missing_and_an_old_one_leaves_it_out() -> None:
    bare = engine_run()
    assert "mem – · cpu – · capture –" in head(bare, 200)
    assert "–" not in head(bare, 200, writer="")


@pytest.mark.parametrize(
    ("weights", "said"), [("random(7)", "weights=random"), ("/models/gemma", "weights=real"), ("q4", "q4")]
)
def test_weights_are_random_or_real(weights: str, said: str) -> None:
    assert f" · {said} · " in head(engine_run(weights=weights), 120)


def test_what_differs_stays_on_a_low_screen_instead_of_the_ends_of_long_notes() -> None:
    step, kernels = f"undecided: step 1 ms → 2 ms{', or more' * 6}", f"undecided: kernels 1 ms{', or so' * 6}"
    notes = step, kernels, "  what differs: prompt 48 and 160", "  carried by mm"

    def texts(most: int) -> list[str]:
        return ["".join(span.text for span in line) for line in fit_notes(notes, 50, most)]

    assert texts(6)[2].startswith(" undecided: kernels") and texts(6)[3].startswith("   so, or so")
    assert texts(6)[4:] == [" " + note for note in notes[2:]]
    cut = texts(4)
    assert len(cut) == 4 and cut[0].startswith(" undecided: step") and cut[2].endswith(" …")
    assert cut[3] == "   what differs: prompt 48 and 160"
