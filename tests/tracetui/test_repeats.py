"""Several recordings of the same: numbered files, and how far they lie apart."""

import math
import re
from pathlib import Path

import pytest
from scipy import stats

from tests.tracetui.in_process import tracetui
from tracetui.compare.evidence.sample_size import compute_detectable_change

STEPS = 12
# writes STEPS steps of one kernel; FACTOR grows by a tenth from recording to recording
ENGINE = f"""
import os, pathlib
told = pathlib.Path("number")
number = int(told.read_text()) + 1 if told.exists() else 0
told.write_text(str(number))
took = int(10_000 * 1.1 ** number)
with open(os.environ["TRACETUI_OUT"], "a") as out:
    print('{{"kind":"run","schema":1,"name":"toy","meta":{{"model":"toy"}}}}', file=out)
    for step in range({STEPS}):
        t = step * took
        where = f'"step":{{step}},"phase":"decode","t":{{t}},"dur":{{took}},"lens":"gpu"'
        print(f'{{{{"kind":"kernel","name":"k",{{where}}}}}}', file=out)
        print(f'{{{{"kind":"step","name":"decode","tokens":1,{{where}}}}}}', file=out)
"""


@pytest.fixture
def engine(tmp_path: Path) -> list[str]:
    (tmp_path / "engine.py").write_text(ENGINE)
    return ["--", "python", "engine.py"]


@pytest.mark.slow
def test_repeats_are_numbered_and_their_spread_is_told(engine: list[str], tmp_path: Path) -> None:
    """Times of 1, 1.1 and 1.21: the logarithms lie one log(1.1) apart, which is their standard deviation."""
    result = tracetui("record", "--repeat", "3", "-o", "p.jsonl", *engine, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["p-1.jsonl", "p-2.jsonl", "p-3.jsonl"]
    floor = math.log(1.1)
    one, three = (
        math.expm1(stats.t.isf(0.025, freedom) * floor * math.sqrt(2 / runs))
        for freedom, runs in ((2, 1), (4, 3))
    )
    *_, actual, keep = result.stderr.splitlines()
    assert actual == (
        "tracetui: 3 recordings: decode 10.00 µs to 12.10 µs per token, run-to-run floor 9.5%: "
        f"one recording per side detects a change of about {one:.1%}, 3 per side {three:.1%}"
    )
    assert keep == "tracetui: save them: tracetui baseline NAME p-1.jsonl p-2.jsonl p-3.jsonl"
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "state").mkdir()
    kept = tracetui("baseline", "toy", *keep.split()[6:], cwd=tmp_path, env=state)
    assert "its 3 runs differ by 9.5%" in kept.stderr
    diffed = tracetui("diff", "baseline:toy", "p-3.jsonl", cwd=tmp_path, env=state)
    assert "measured on 3 runs" in diffed.stdout


def test_no_file_is_written_over_and_nothing_runs_then(engine: list[str], tmp_path: Path) -> None:
    (tmp_path / "p-2.jsonl").write_text("precious\n")
    result = tracetui("record", "--repeat", "3", "-o", "p.jsonl", *engine, cwd=tmp_path)
    assert result.returncode == 2 and "p-2.jsonl already exists" in result.stderr
    assert [path.name for path in tmp_path.glob("p-*")] == ["p-2.jsonl"]
    assert not (tmp_path / "number").exists() and (tmp_path / "p-2.jsonl").read_text() == "precious\n"


def test_a_recording_that_fails_ends_the_series(engine: list[str], tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text(script.read_text() + "raise SystemExit(9 if number == 1 else 0)\n")
    result = tracetui("record", "--repeat", "3", "-o", "p.jsonl", *engine, cwd=tmp_path)
    assert result.returncode == 9
    assert result.stderr.splitlines()[-1] == "tracetui: 1 of 3 recordings were made: p-1.jsonl"
    assert [path.name for path in tmp_path.glob("p-*")] in (
        ["p-1.jsonl", "p-2.jsonl"], ["p-2.jsonl", "p-1.jsonl"],
    )  # fmt: skip


def test_recordings_without_a_place_have_numbers_too(engine: list[str], tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    result = tracetui("record", "--repeat", "2", *engine, cwd=tmp_path, env=env)
    names = sorted(path.name for path in (tmp_path / "tracetui" / "runs").iterdir())
    assert result.returncode == 0 and len(names) == 2
    assert all(re.fullmatch(rf"\d+-\d+-python-{n}\.jsonl", name) for n, name in enumerate(names, 1))


@pytest.mark.parametrize("number", ["0", "-1", "two", "1001"])
def test_what_is_no_number_of_recordings_is_refused(number: str, tmp_path: Path) -> None:
    result = tracetui("record", f"--repeat={number}", "-o", "p.jsonl", "--", "touch", "ran", cwd=tmp_path)
    assert result.returncode == 2 and ": use 1 to 1,000" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("freedom", "runs"), [(math.inf, 1), (3.0, 1), (3.0, 3), (math.inf, 5)])
def test_what_runs_tell_is_what_a_t_test_just_decides(freedom: float, runs: int) -> None:
    change, spread = compute_detectable_change(0.03, freedom, runs), 0.03
    degrees = freedom if runs == 1 else 2 * runs - 2
    t = math.log1p(change) / (spread * math.sqrt(2 / runs))
    p = 2 * (stats.norm.sf(t) if math.isinf(degrees) else stats.t.sf(t, degrees))
    assert p == pytest.approx(0.05, rel=1e-4)
