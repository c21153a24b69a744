"""Text formats under damage: whatever is done to a file, it gives runs or one clear error."""

import random
from pathlib import Path

import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from tests.conftest import FIXTURES

FILES = (
    "mlc/console.txt", "mlc/table.md", "mlc/table.txt", "doppler/browser.log", "doppler/report.json",
    "latencyprism/strict.md", "latencyprism/exploratory.md", "latencyprism/strict.csv",
    "latencyprism/perf_data.csv", "latencyprism/counters_data.csv",
)  # fmt: skip
JUNK = (
    b"\x00", b"|", b'"', b"\n", b",", b"1e999", b"-", b"nan", b"inf", b"9" * 70, b"\xff\xfe", b"{", b"}",
    b"[", b"1_0", "β_x(%)".encode(), "─".encode(), b"\x1b[2J", b"true", b"null", b" ",
)  # fmt: skip


def damaged(whole: bytes, dice: random.Random) -> bytes:
    """A few bytes overwritten, put in, taken out or repeated."""
    out = bytearray(whole)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(out))
        kind = dice.choice(("flip", "insert", "delete", "repeat"))
        if kind == "flip":
            out[at] = dice.randrange(256)
        elif kind == "insert":
            out[at:at] = dice.choice(JUNK)
        elif kind == "delete":
            del out[at : at + dice.randint(1, 40)]
        else:
            out[at:at] = out[max(0, at - 200) : at]
    return bytes(out)


@pytest.mark.corpus
@pytest.mark.parametrize("name", FILES)
def test_damage_gives_runs_or_one_error(name: str, tmp_path: Path) -> None:
    dice, whole, opened = random.Random(name), (FIXTURES / name).read_bytes(), 0
    for _ in range(20):
        file = tmp_path / "damaged"
        file.write_bytes(damaged(whole, dice))
        try:
            runs = load(file, cache=False)
        except UnreadableError:
            continue
        opened += 1
        for run in runs:
            assert run.log.read >= run.log.dropped >= 0
            if run.has("dur"):
                assert run.events["dur"].drop_nulls().ge(0).all()
    assert opened > 0 or name.endswith(".json")  # damage to JSON is nearly always damage to its whole


def test_a_record_nested_too_deeply_is_counted_and_named_so(tmp_path: Path) -> None:
    depth = 100_000  # some Pythons read a few thousand
    deep = "[" * depth + "1" + "]" * depth
    event = '{"ph":"X","name":"k","cat":"kernel","ts":1,"dur":2,"pid":0,"tid":0'
    first, *others = (FIXTURES / "metallic" / "recording.jsonl").read_text().splitlines(keepends=True)
    files = {
        "list.json": f'[{event}}},{event},"args":{{"x":{deep}}}}}]',
        "object.json": f'{{"traceEvents":[{event}}},{event},"args":{{"x":{deep}}}}},{event}}}]}}',
        "lines.jsonl": f'{event}}}\n{event},"args":{{"x":{deep}}}}}\n',
        "metallic.jsonl": "".join((first, first.replace('"data":{', f'"data":{{"x":{deep},', 1), *others)),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        [run, *_] = load(tmp_path / name, cache=False)
        [loss] = [notice for notice in run.log.notices if notice.severity == "data_loss"]
        assert (loss.id, loss.count, run.log.dropped) == ("too_deep", 1, 1), name
        assert "nested too deeply" in loss.message
