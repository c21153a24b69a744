"""The gate: sides of several runs on the command line, and what its exit code says."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from capture.export_runs import export
from tests.capture.test_merge_ranks import kineto
from tests.conftest import document
from tests.tracetui.compare.evidence.test_repeat_test import FACTORS, noisy
from tests.tracetui.in_process import tracetui

SLOW = {"mlp.down": 1.3}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of three runs each: before, after, slow; every run on a machine of its own speed."""
    folder = tmp_path_factory.mktemp("sides")
    for i, side in enumerate(("before", "after", "slow")):
        (folder / side).mkdir()
        for k, factor in enumerate(FACTORS):
            run = noisy(side, factor, 10 * i + k, SLOW if side == "slow" else None)
            export([run], folder / side / f"{k}.jsonl", overwrite=True)
    return folder


def side(files: Path, name: str) -> list[Path]:
    return sorted((files / name).iterdir())


def test_a_folder_of_all_ranks_of_a_launch_is_one_run(files: Path, tmp_path: Path) -> None:
    """Its files state their ranks; they are no repeats. Other files of the side are."""
    for launch in ("before", "again", "after"):
        (tmp_path / launch).mkdir()
        for rank in (0, 1):
            (tmp_path / launch / f"{rank}.json").write_text(kineto(rank))
    (tmp_path / "again" / "0.json").write_text(kineto(0).replace('"dur": 20', '"dur": 21'))
    before, again, after = (tmp_path / launch for launch in ("before", "again", "after"))
    (after / "0.json").write_text(kineto(0).replace("gemm", "bmm"))
    alone = tracetui("diff", before, after)
    assert "repeat" not in alone.stdout and "gemm · rank 0" in alone.stdout
    repeats = tracetui("diff", "--a", before, again, "--b", after)
    assert "and 1 repeat" in repeats.stdout and "gemm · rank 0" in repeats.stdout


def test_folders_are_sides_of_repeats(files: Path) -> None:
    slow = tracetui("diff", files / "before", files / "slow", "--fail-over", "3%")
    assert slow.returncode == 1
    assert (
        "slower: L0.mlp.down +" in slow.stderr
        and " per token, p " in slow.stderr
        and "L0.norm" not in slow.stderr
    )
    assert "samples are 3 and 3 runs" in slow.stdout
    assert "; overall undecided: decode step " in slow.stdout.partition("\n")[0]
    passed = tracetui("diff", files / "before", files / "after", "--fail-over", "3%")
    assert (
        passed.returncode == 0
        and "decode step is undecided: more than 50 recordings per side" in passed.stderr
    )


def test_a_gate_that_wants_decisions_fails_undecided_phases_and_rows(files: Path) -> None:
    """Rows are the same and the step is undecided, where machines differ: --rows asks about rows only."""
    ask = ("diff", files / "before", files / "after", "--fail-over", "3%")
    failed = tracetui(*ask, "--undecided", "fail")
    assert failed.returncode == 1 and "undecided, which fails this gate" in failed.stderr
    assert "decode step" in failed.stderr and "slower:" not in failed.stderr
    assert tracetui(*ask, "--undecided", "pass").returncode == tracetui(*ask).returncode == 0
    same_rows = tracetui(*ask, "--undecided", "fail", "--rows", "norm")
    assert same_rows.returncode == 0 and "which fails this gate" not in same_rows.stderr
    finer = tracetui(*ask[:-1], "0.01%", "--undecided", "fail", "--rows", "norm")
    assert finer.returncode == 1 and finer.stderr.endswith("L1.norm in decode, L0.norm in decode\n")


def test_undecided_without_a_gate_is_a_usage_error(files: Path) -> None:
    for side in ("fail", "pass"):
        result = tracetui("diff", files / "before", files / "after", "--undecided", side)
        assert result.returncode == 2 and "add --fail-over PERCENT" in result.stderr and result.stdout == ""


def test_repeats_are_named_one_by_one_too(files: Path) -> None:
    before, slow = side(files, "before"), side(files, "slow")
    by_option = tracetui("diff", "--a", *before, "--b", *slow, "--fail-over", "3%", "--format", "csv")
    mixed = tracetui(
        "diff",
        before[0],
        slow[0],
        "--a",
        *before[1:],
        "--b",
        *slow[1:],
        "--fail-over",
        "3%",
        "--format",
        "csv",
    )
    folders = tracetui("diff", files / "before", files / "slow", "--fail-over", "3%", "--format", "csv")
    assert by_option.returncode == mixed.returncode == 1
    assert by_option.stdout == mixed.stdout == folders.stdout


def test_identical_runs_hold_a_single_pair_back(files: Path) -> None:
    """One run a side where the speed wanders: trusted, they differ; beside identical runs they do not."""
    one, other = side(files, "before")[0], side(files, "after")[1]
    assert tracetui("diff", one, other, "--fail-over", "3%", "--trust-one-run").returncode == 1
    held = tracetui("diff", one, other, "--fail-over", "3%", "--aa", files / "before", files / "after")
    assert held.returncode == 0 and "4 identical ones for the noise" in held.stdout
    assert "before, after are compared and also named by --aa: counted once" in held.stdout


def test_a_run_that_is_compared_is_no_second_sample_of_the_noise(files: Path) -> None:
    """Runs that are identical to side a repeat it: the same answer as with --a, whichever way it is named."""
    (one, *others), slow = side(files, "before"), side(files, "slow")[0]
    gate = ("--fail-over", "3%", "--format", "csv")
    by_noise = tracetui("diff", one, slow, "--aa", one, *others, *gate)
    by_repeats = tracetui("diff", one, slow, "--a", *others, *gate)
    assert by_noise.returncode == by_repeats.returncode == 1
    actual = [pl.read_csv(result.stdout.encode()) for result in (by_noise, by_repeats)]
    same = ("name", "median_a_ns", "median_b_ns", "p", "n_a", "n_b", "verdict")
    assert actual[0].select(same).equals(actual[1].select(same)) and set(actual[0]["n_a"]) == {3}


def test_a_recording_on_both_sides_is_refused(files: Path) -> None:
    one, other = side(files, "before")[:2]
    result = tracetui("diff", one, other, "--b", one)
    assert result.returncode == 2 and "is on both sides" in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--a", "before"), "the second side has no file"),
        (("--b", "before"), "the first side has no file"),
        (("before", "after", "slow"), "--a FILE"),
        (("before", "after", "--aa", "slow/0.jsonl"), "two or more"),
        ((), "no file"),
    ],
)
def test_sides_that_are_not_whole_are_refused(files: Path, args: tuple[str, ...], says: str) -> None:
    result = tracetui("diff", *args, cwd=files)
    assert result.returncode == 2 and says in result.stderr and result.stdout == ""


def test_a_repeat_must_be_of_the_same_thing(files: Path, tmp_path: Path) -> None:
    other = noisy("other", 1.0, 3)
    export([replace(other, meta={"model": "another"})], tmp_path / "other.jsonl", overwrite=True)
    empty = replace(other, events=other.events.filter(pl.col("kind") == "step"))
    export([empty], tmp_path / "empty.jsonl", overwrite=True)
    for name, why in (("other", "model differs"), ("empty", "no kernel time in a repeat")):
        result = tracetui(
            "diff", *(files / s for s in ("before", "after")), "--b", tmp_path / f"{name}.jsonl"
        )
        assert result.returncode == 4 and why in result.stderr


@pytest.mark.parametrize(("name", "rows", "cycles"), [
    ("latencyprism/cross.md", 29, "3 36"), ("seed 3", 264, "14 238"),
])  # fmt: skip
def test_a_report_that_holds_both_sides_of_a_wrong_comparison(name: str, rows: int, cycles: str) -> None:
    result = tracetui("diff", document(name), "--stats", "cycle", "--format", "json")
    actual = json.loads(result.stdout)
    assert result.returncode == 4 and len(actual["rows"]) == rows
    assert not actual["comparable"]["ok"] and any(
        all(n in r for n in cycles.split()) for r in actual["comparable"]["reasons"]
    )


def test_one_run_a_side_fails_no_gate_unless_it_is_known_how_runs_differ(files: Path, tmp_path: Path) -> None:
    """Exit 4, and what would decide; 1 where the floor is known or a person takes the risk."""
    one, other = side(files, "before")[0], tmp_path / "slow.jsonl"
    export([noisy("slow", FACTORS[0], 1, {"mlp.down": 4.0})], other, overwrite=True)
    plain = tracetui("diff", one, other, "--fail-over", "3%")
    assert plain.returncode == 4 and "slower: L0.mlp.down" in plain.stderr
    assert "3 recordings per side" in plain.stderr
    assert tracetui("diff", one, other, "--fail-over", "3%", "--trust-one-run").returncode == 1
    assert tracetui("diff", one, other, "--fail-over", "3%", "--floor", "4%").returncode == 1
    assert tracetui("diff", one, other, "--fail-over", "3%", "--floor", "200%").returncode == 0


def test_a_baseline_of_repeats_knows_how_runs_differ(files: Path, tmp_path: Path) -> None:
    home = {"XDG_STATE_HOME": str(tmp_path)}
    kept = tracetui("baseline", "main", *side(files, "before"), env=home)
    assert kept.returncode == 0 and "its 3 runs differ by " in kept.stderr
    after = tracetui("diff", "baseline:main", side(files, "after")[0], "--format", "json", env=home)
    assert "measured on 3 runs" in " ".join(json.loads(after.stdout)["notes"])
    one = side(files, "before")[0]
    twice = tracetui("baseline", "main", one, one, "--replace", env=home)
    assert twice.returncode == 2 and "two recordings of the same" in twice.stderr
