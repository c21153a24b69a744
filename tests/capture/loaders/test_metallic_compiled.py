"""The compiled scanner of metallic's lines gives what the line reader gives, and gives back the rest."""

import gzip
import json
import random
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from capture.extensions import OFF_VARIABLE
from capture.load_runs import load
from capture.loaders._scan import load_scanner
from capture.loaders.metallic import compiled_scan, event_log
from capture.loaders.metallic.line_reader import RawEvents
from tests.bench._metallic_maker import Maker
from tests.capture.loaders.test_metallic import DAMAGES, recorded

pytestmark = pytest.mark.skipif(load_scanner() is None, reason="the compiled scanner is not built")


def lines(count: int = 1500) -> list[str]:
    return list(islice(Maker(3, 5).lines(), count))


def scanned(source: Path | bytes) -> tuple[RawEvents, list[int]]:
    found = compiled_scan.scan(source)
    assert found is not None
    return found


def told(raw: RawEvents) -> list[tuple[object, ...]]:
    """Return key, duration, time and data of every row, each in words."""
    payloads = raw.payloads.to_list()
    return [
        (None if key is None else raw.keys[key], us, stamp, None if payload is None else payloads[payload])
        for key, us, stamp, payload in raw.rows.select(
            "key", "duration_us", "timestamp_ns", "payload"
        ).iter_rows()
    ]


def assert_read_alike(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare runs of the compiled scanner with those of the line reader."""
    fast = load(path, cache=False)
    with monkeypatch.context() as patch:
        patch.setattr(event_log, "_scan_log", lambda source: None)
        slow = load(path, cache=False)
    for mine, plain in zip(fast, slow, strict=True):
        assert_frame_equal(mine.events, plain.events, categorical_as_str=True)
        assert (mine.log.read, mine.log.dropped) == (plain.log.read, plain.log.dropped)
        assert mine.meta == plain.meta


def test_every_number_and_word_is_that_of_its_line() -> None:
    """What stands in the lines, read by the standard library."""
    text = lines()
    raw, odd = scanned("".join(text).encode())
    assert odd == []
    for line, (key, us, stamp, rest) in zip(text, told(raw), strict=True):
        record = json.loads(line)
        moment = datetime.fromisoformat(record["timestamp"])
        assert stamp == round(moment.replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000
        data = record["event"]["data"]
        assert us == data.get("duration_us")
        assert key is not None and key.type == record["event"]["type"]
        name = key.internal_name or key.op_name
        assert name == (data.get("internal_kernel_name") or data.get("op_name") if us is not None else None)
        assert (us is None) == (rest is not None and json.loads(str(rest)) == data)


@pytest.mark.parametrize("size", [1, 7, 300, 1 << 18])
def test_parts_and_pieces_do_not_matter(size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = "".join(lines(400)).encode().removesuffix(b"\n")
    whole, _ = scanned(data)
    monkeypatch.setattr(compiled_scan, "BLOCK_BYTES", size)
    monkeypatch.setattr(compiled_scan, "MIN_PART_BYTES", 1 << 12)
    monkeypatch.setattr(compiled_scan.pl, "thread_pool_size", lambda: 5)
    path = tmp_path / "prof.jsonl"
    path.write_bytes(data)
    for source in (data, path):
        raw, odd = scanned(source)
        assert odd == [] and told(raw) == told(whole)


def test_damaged_lines_are_read_as_by_the_line_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, text = random.Random(3), lines(4000)
    for place, (old, new) in enumerate(DAMAGES):
        for line in range(100 + 40 * place, 104 + 40 * place):
            text[line] = text[line].replace(old, new)
    for _ in range(60):
        at = dice.randrange(len(text))
        cut = dice.randrange(len(text[at]))
        text[at] = (
            text[at][:cut] + dice.choice(("", '"', "}", "\u00e9", ",", "\t", "\\", "0")) + text[at][cut + 1 :]
        )
    path = tmp_path / "prof.jsonl"
    path.write_text("".join(text))
    _, odd = scanned(path)
    assert len(odd) > 50
    assert_read_alike(path, monkeypatch)
    zipped = tmp_path / "zipped.jsonl.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert_read_alike(zipped, monkeypatch)


@pytest.mark.corpus
@pytest.mark.parametrize(
    "stamp",
    [
        "2024-02-29T23:59:59.999999999Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.5Z",
        "2000-03-01T00:00:00.000001Z", "2023-02-29T00:00:00Z", "2025-13-01T00:00:00Z",
        "2025-04-31T00:00:00Z", "2025-00-10T00:00:00Z", "2025-01-00T00:00:00Z", "2025-01-01T24:00:00Z",
        "2025-01-01T00:60:00Z", "2025-01-01T00:00:60Z", "2025-01-01 00:00:00Z", "2025-01-01T00:00:00",
        "2025-01-01T00:00:00.Z", "2025-01-01T00:00:00.1234567890Z", "2025-01-01T00:00:00+00:00",
        "0001-01-01T00:00:00Z", "2261-12-31T00:00:00Z", "1900-02-29T00:00:00Z", "2100-03-01T00:00:00Z",
    ],
)  # fmt: skip
def test_times_of_all_kinds(stamp: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = lines(300)
    first = text[50]
    text[50] = first[:14] + stamp + first[first.index('"', 14) :]
    path = tmp_path / "prof.jsonl"
    path.write_text("".join(text))
    assert_read_alike(path, monkeypatch)


def test_a_time_that_is_none_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = lines(300)
    for at, first in ((50, "x"), (51, "\0"), (52, "\0"), (120, "x"), (123, "\0")):
        text[at] = text[at][:14] + first + text[at][15:]
    text[0] = text[0].replace("2025-12-23T10:15:30", "\0" * 19)
    path = tmp_path / "prof.jsonl"
    path.write_text("".join(text))
    _, odd = scanned(path)
    assert odd == [0, 50, 51, 52, 120, 123]
    assert_read_alike(path, monkeypatch)


@pytest.mark.slow
def test_lines_that_never_repeat_are_left_to_the_line_reader(tmp_path: Path) -> None:
    """Spans with a number of their own: each text would be kept."""
    path = recorded(tmp_path / "prof.jsonl", 60_000)
    text = path.read_text().splitlines()
    text = [line.replace('"span_id":null', f'"span_id":"{at:0600}"') for at, line in enumerate(text)]
    path.write_text("\n".join(text))
    assert compiled_scan.scan(path) is None
    log = load(path, cache=False)[0].log
    assert (log.read, log.dropped) == (len(text), 0)


def test_without_the_scanner_the_line_reader_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(tmp_path / "prof.jsonl", 600)
    (fast,) = load(path, cache=False)
    monkeypatch.setenv(OFF_VARIABLE, "1")
    assert compiled_scan.scan(path) is None
    (slow,) = load(path, cache=False)
    assert_frame_equal(fast.events, slow.events, categorical_as_str=True)
    assert fast.meta == slow.meta
