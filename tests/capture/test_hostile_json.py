"""Hostile JSON, JSON lines and gzip: each is read whole, read in part or refused, as its entry states."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from capture.run import Run
from tests.capture.peak import peak_kib
from tests.hostile import EVENTS, JSON, SOME, Hostile


def check(run: Run, case: Hostile) -> None:
    log = run.log
    assert run.events.height == log.retained
    assert 0 < run.events.height < EVENTS if case.left == SOME else run.events.height == case.left
    complaints = [n for n in log.notices if n.severity != "notice"]
    if case.expect == "full":
        assert not complaints and not log.dropped
    else:
        assert complaints or log.repaired or any(n.count for n in log.notices)
    if run.has("dur"):
        assert (run.events["dur"].drop_nulls() >= 0).all()


@pytest.mark.corpus
@pytest.mark.parametrize("case", JSON, ids=lambda c: c.file)
def test_each_does_what_is_expected(case: Hostile, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    if case.expect == "refuse":
        with pytest.raises(UnreadableError) as refused:
            load(path, cache=False)
        assert "\n" not in str(refused.value)
    else:
        (run,) = load(path, cache=False)
        check(run, case)


BIG = ("bomb_1000x.json.gz", "bomb_gz_in_gz.gz", "deep_array.json", "name_long64k.json")


@pytest.mark.parametrize("case", [c for c in JSON if c.file in BIG], ids=lambda c: c.file)
@pytest.mark.slow
def test_memory_stays_bounded(case: Hostile, tmp_path: Path) -> None:
    assert peak_kib(case.write(tmp_path)) < 512 * 1024


def kernel(i: int, **keys: Any) -> dict[str, Any]:
    name = f"kernel_{i % 7}"
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": 1000 + i * 10,
        "dur": 5,
    } | keys


@pytest.mark.parametrize(
    ("bad", "dropped"),
    [
        ('"dur": NaN', 1), ('"dur": inf', 1), ('"dur": N/A', 1), ('"dur": "1_000"', 1), ('"dur": "٣"', 1),
        ('"dur": true', 1), ('"dur": []', 1), ('"dur": 1e999', 1), ('"dur": -1', 1), ('"dur": "5.5"', 0),
        ('"dur": 1e300', 0), ('"dur": 9223372036854775808', 0),
    ],
)  # fmt: skip
def test_sums_hold_only_finite_times(tmp_path: Path, bad: str, dropped: int) -> None:
    """What is no time is in no sum, and is counted."""
    good = [json.dumps(kernel(i)) for i in range(3)]
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [' + ",".join([*good, json.dumps(kernel(3)).replace('"dur": 5', bad)]) + "]}"
    )
    (run,) = load(path, cache=False)
    assert run.log.dropped == dropped
    fourth = 5500 if bad == '"dur": "5.5"' else 0
    assert run.events["dur"].sum() == 3 * 5000 + fourth


def test_a_name_of_a_million_characters_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"traceEvents": [kernel(0, name="k" * 1_000_000), kernel(1)]}))
    (run,) = load(path, cache=False)
    assert run.events["name"].cast(pl.String).str.len_chars().max() == 1_000_000


def test_many_empty_gzip_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.gz"
    path.write_bytes(gzip.compress(b"") * 50_000)
    with pytest.raises(UnreadableError):
        load(path, cache=False)


def test_the_readable_part_of_a_damaged_gzip_is_given(tmp_path: Path) -> None:
    lines = [json.dumps(kernel(i)) for i in range(5000)]
    packed = bytearray(gzip.compress("\n".join(lines).encode()))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "flipped.jsonl.gz"
    path.write_bytes(packed)
    (run,) = load(path, cache=False)
    assert 1000 < run.events.height < 5000
    names = run.events["name"].cast(pl.String).to_list()
    assert names[:1000] == [f"kernel_{i % 7}" for i in range(1000)]
    assert any(n.id == "gzip_damaged" for n in run.log.notices)
