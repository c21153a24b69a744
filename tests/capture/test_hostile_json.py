"""Every hostile JSON, JSON-lines and gzip sample does what its manifest expects: full, partial or refuse."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.open import load
from capture.run import Run
from tests.capture.peak import peak_kib
from tests.conftest import SHARED, shared

ROOT = Path(__file__).parent.parent.parent
HOSTILE = SHARED / "samples" / "hostile"
MANIFEST = HOSTILE / "MANIFEST.jsonl"
OTHER_FORMATS = ("names_unique_100k.jsonl",)
# What is left of the 200 kernels of the control file; a row less wherever one event is spoilt.
LEFT = {
    "multi.jsonl.gz": 400, "no_kernels.json": 0, "be_unbalanced.json": 1, "trunc_25.json": 49,
    "trunc_50.json": 99, "trunc_75.json": 149, "trunc_99.json": 198, "trunc_minus1.json": 200,
    "trunc_minus2.json": 200, "arr_nul_tail.json": 100, "torn_mid.jsonl": 198, "nul_hole.jsonl": 194,
    "trunc_trailer.jsonl.gz": 200, "badcrc.jsonl.gz": 200, "tail_garbage.jsonl.gz": 200, "latin1.json": 200,
    "no_dur.json": 200, "events_scalar.json": 200, "two_docs.json": 200,
}  # fmt: skip
CUT_BY_GZIP = ("trunc.jsonl.gz", "flip.jsonl.gz")


def cases() -> list[dict[str, Any]]:
    if not MANIFEST.exists():
        return []
    entries = [json.loads(line) for line in MANIFEST.read_text().splitlines()]
    wanted = (".json", ".jsonl", ".gz")
    return [e for e in entries if e["file"].endswith(wanted) and e["file"] not in OTHER_FORMATS]


def check(run: Run, file: str, expect: str) -> None:
    log = run.log
    assert run.events.height == log.kept
    if file in CUT_BY_GZIP:
        assert 0 < run.events.height < 200
    else:
        assert run.events.height == LEFT.get(file, 200 if expect == "full" else 199)
    complaints = [n for n in log.notices if n.severity != "notice"]
    if expect == "full":
        assert not complaints and not log.dropped
    else:
        assert complaints or log.repaired or any(n.count for n in log.notices)
    if run.has("dur"):
        total = run.events["dur"].drop_nulls()
        assert (total >= 0).all() and total.len() <= run.events.height


@pytest.mark.parametrize("case", cases(), ids=lambda c: str(c["file"]))
def test_sample_does_what_the_manifest_expects(case: dict[str, Any]) -> None:
    path = HOSTILE / case["file"]
    if not path.exists():
        pytest.skip(f"{case['file']} is not beside this checkout")
    if case["expect"] == "refuse":
        with pytest.raises(UnreadableError) as refused:
            load(path, cache=False)
        assert "\n" not in str(refused.value)
    else:
        (run,) = load(path, cache=False)
        check(run, case["file"], case["expect"])


@pytest.mark.parametrize(
    "file", ["bomb_1000x.json.gz", "bomb_gz_in_gz.gz", "deep_array_100k.json", "name_long64k.json"]
)
def test_memory_stays_bounded(file: str) -> None:
    assert peak_kib(shared(f"samples/hostile/{file}")) < 512 * 1024


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
