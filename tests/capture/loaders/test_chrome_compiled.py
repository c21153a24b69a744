"""The compiled scanner gives what the plain JSON reader gives, frame for frame, or refuses the file."""

import gzip
import json
import random
import re
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from capture.extensions import OFF_VARIABLE
from capture.loaders._scan import load_scanner
from capture.loaders.chrome import compiled_reader, jsonl, lenient_reader
from capture.loaders.chrome import trace as chrome_trace
from capture.loaders.chrome.trace import TraceReader
from capture.loaders.chrome.trace_model import RefusedError, Trace
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.run import Run
from capture.source import Source
from tests.capture.loaders._chrome_samples import TORCH_LAYOUT
from tests.conftest import FIXTURES, document
from tests.hostile import JSON, Hostile

pytestmark = pytest.mark.skipif(load_scanner() is None, reason="the compiled scanner is not built")

CHROME = sorted(
    path.relative_to(FIXTURES).as_posix()
    for folder in ("chrome", "proton")
    for path in (FIXTURES / folder).rglob("*.json*")
)
REFUSED = {  # fixtures that are not plain JSON from end to end, or that state their own scopes
    "chrome/onnxruntime.json",
    "chrome/proton_inside_kernel.json",
    "chrome/proton_timeline.json",
}


def opened(path: Path, reader: TraceReader) -> tuple[Trace, Run]:
    source = Source.from_path(path)
    trace = reader(source)
    return trace, convert_to_run(trace, source)


def assert_same(path: Path) -> bool:
    """Compare both readers on a file; return False where the compiled one refuses it."""
    head = Source.from_path(path).head
    of_lines = jsonl.sniff(head) and not chrome_trace.sniff(head)
    fast, slow = (
        (compiled_reader.read_lines, lenient_reader.read_lines)
        if of_lines
        else (compiled_reader.read_document, lenient_reader.read_document)
    )
    try:
        mine, run = opened(path, fast)
    except RefusedError:
        return False
    plain, expected = opened(path, slow)
    assert_frame_equal(run.events, expected.events, categorical_as_str=True)
    assert run.meta == expected.meta
    assert {n.id: n for n in run.log.notices} == {n.id: n for n in expected.log.notices}
    assert (run.log.read, run.log.dropped) == (expected.log.read, expected.log.dropped)
    assert mine.header == plain.header
    columns = ["t", "dur", "correlation", "external_id"]
    assert_frame_equal(mine.complete.rows.select(columns), plain.complete.rows.select(columns))
    for name in ("cat", "name", "thread"):
        assert mine.complete.expand_label(name).to_list() == plain.complete.expand_label(name).to_list()
    return True


@pytest.mark.corpus
@pytest.mark.parametrize("name", sorted({*CHROME, *TORCH_LAYOUT}))
def test_both_give_the_same_of_every_fixture(name: str) -> None:
    assert assert_same(document(name)) == (name not in REFUSED)


PLAIN_AND_REFUSED = {"dup_keys.json", "deep_args.json", "name_surrogate.json", "two_docs.json"}


def is_plain(content: bytes) -> bool:
    """Return whether a strict parser takes a document, or each of its lines, as an object or a list."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        text = content.decode()
        texts = [text] if text.startswith(('{"schemaVersion', "[")) else text.splitlines()
        return all(isinstance(json.loads(t, parse_constant=refuse), list | dict) for t in texts)
    except (ValueError, RecursionError):
        return False


@pytest.mark.corpus
@pytest.mark.parametrize(
    "hostile", [h for h in JSON if ".json" in h.file and "bomb" not in h.file], ids=lambda h: h.file
)
def test_both_give_the_same_of_hostile_files(hostile: Hostile, tmp_path: Path) -> None:
    path = hostile.write(tmp_path)
    head = Source.from_path(path).head
    if chrome_trace.sniff(head) or jsonl.sniff(head):
        plain = (
            is_plain(b"".join(Source.from_path(path).iter_chunks())) and hostile.file not in PLAIN_AND_REFUSED
        )
        taken = assert_same(path)
        assert taken or not plain or hostile.expect != "full", hostile.why


def base(**changed: Any) -> dict[str, Any]:
    """Return a kernel, its launch or an operator, as a profiler states them, with some members changed."""
    plain = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}}
    return plain | changed


def written(tmp_path: Path, events: list[Any], **how: Any) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}, **how))
    return path


TIMES = [
    "0", "-0", "7", "-7.5", "1.2345", "1.2355", "1.2365", "0.0005", "0.0015", "-1.2345", "-1.2355",
    "1.23450001", "4366130346967.857", "1669329643132548.123", "999999999999999.999", "1234567890123456.5",
    "0.9995", "0.9996", "1.23449999999999999999", "1.2345000000000000000000000000001", "1e3", "1.5e-2",
    "12E+2", "1e-9",
]  # fmt: skip


def test_times_are_rounded_half_to_even_whatever_their_spelling(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [json.dumps(base(ts="?")).replace('"?"', time) for time in TIMES]
    path.write_text(f'{{"traceEvents": [{", ".join(events)}]}}')
    trace, _ = opened(path, compiled_reader.read_document)
    with localcontext(prec=60):
        expected = [int((Decimal(t) * 1000).quantize(Decimal(1), ROUND_HALF_EVEN)) for t in TIMES]
    assert trace.complete.rows["t"].to_list() == expected
    assert assert_same(path)


REPEATED = (
    '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": %t, "dur": %t, "args": '
    '{"External id": %n, "Input Dims": [[%o, 8]], "Input type": ["float"], "Ev Idx": %n}}',
    '{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": %t, "dur": %t, '
    '"args": {"cbid": %n, "correlation": %n}}',
    '{"ph": "s", "id": %n, "pid": 1, "tid": 1, "ts": %t, "cat": "ac2g", "name": "ac2g"}',
    '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %t, "dur": %t, "args": '
    '{"External id": %n, "correlation": %n, "more": {"correlation": %n}, "stream": %n, '
    '"registers per thread": %o, "grid": [%o, 1, 1], "block": [64, 1, 1]}}',
    '{"args": {"a": [{"correlation": 5}, %n], "correlation": %n}, "ts": %t, "ph": "X", "cat": "kernel", '
    '"name": "args first", "pid": 0, "tid": %o}',
    '{"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": %t}',
)
NUMBERS = [
    "0", "7", "12345678", "123456789012345678", "1234567890123456789", "99999999999999999999999", "-3", "-0",
    "12.5", "1e3", "12E-1", "null", '"7"', "[7]", "true",
]  # fmt: skip


def repeated(dice: random.Random) -> str:
    """Return events of few shapes, most of which differ in plain numbers only."""

    def number(found: re.Match[str]) -> str:
        rare = dice.random() < 0.04
        if found[0] == "%t":
            return dice.choice((*TIMES, "null", '"1.5"')) if rare else f"{dice.randrange(10**6) / 1000:.3f}"
        if found[0] == "%o":
            return str(dice.choice((8, 16)))
        return dice.choice(NUMBERS) if rare else str(dice.randrange(10 ** dice.choice((1, 4, 9))))

    events = (re.sub("%[tno]", number, event) for _ in range(60) for event in REPEATED)
    return f'{{"schemaVersion": 1, "traceEvents": [{", ".join(events)}]}}'


@pytest.mark.parametrize("seed", range(8))
def test_events_that_differ_in_numbers_only(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(repeated(random.Random(seed)))
    assert assert_same(path)


@pytest.mark.corpus
@pytest.mark.parametrize("number", ["01", "1.", "-", "1e", "--1", "+1", ".5", "1 2", "0x1", "007", "١"])
def test_what_is_no_number_is_none_in_a_repeated_event(number: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [base(ts=n, args={"correlation": n, "stream": n}) for n in range(100, 140)]
    for key in ("ts", "correlation", "stream"):
        text = json.dumps({"schemaVersion": 1, "traceEvents": events})
        assert path.write_text(text) and assert_same(path)
        path.write_text(text.replace(f'"{key}": 130', f'"{key}": {number}'))
        with pytest.raises(RefusedError):
            opened(path, compiled_reader.read_document)


@pytest.mark.corpus
@pytest.mark.parametrize(
    "how", [{}, {"indent": 1}, {"indent": "\t"}, {"sort_keys": True}, {"separators": (",", ":")}]
)
def test_every_layout_and_any_cut_into_parts_and_pieces(
    printed: Path, tmp_path: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(printed.read_text())
    for number, one in enumerate(document["traceEvents"][::9]):  # what looks like the border between events
        one["name"] = '}, {"ph": "X", "cat": "kernel", ' + str(number)
    path = written(tmp_path, document["traceEvents"], **how)
    _, whole = opened(path, lenient_reader.read_document)
    assert assert_same(path)
    monkeypatch.setattr(compiled_reader.pl, "thread_pool_size", lambda: 5)
    monkeypatch.setattr(compiled_reader, "MIN_PART_BYTES", 1 << 14)
    for window, piece in ((1 << 20, 1 << 18), (2000, 1009), (300, 211)):
        monkeypatch.setattr(compiled_reader, "BORDER_WINDOW_BYTES", window)
        monkeypatch.setattr(compiled_reader, "PIECE_BYTES", piece)
        _, run = opened(path, compiled_reader.read_document)
        assert_frame_equal(run.events, whole.events, categorical_as_str=True)
    zipped = tmp_path / "zipped.json.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert assert_same(zipped)


def test_a_border_inside_a_text_is_no_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place in the middle that looks like one lies in the arguments of one event."""
    inner = [{"ph": "X", "name": "no event", "ts": 1, "dur": 1}] * 2000
    path = written(tmp_path, [base(ts=1), base(ts=2, args={"inner": inner}), base(ts=3)])
    monkeypatch.setattr(compiled_reader, "MIN_PART_BYTES", 1 << 10)
    monkeypatch.setattr(compiled_reader.pl, "thread_pool_size", lambda: 4)
    trace, _ = opened(path, compiled_reader.read_document)
    assert trace.complete.rows["t"].to_list() == [1000, 2000, 3000]


def test_events_in_lines_are_cut_into_parts_too(
    printed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(e) for e in json.loads(printed.read_text())["traceEvents"]))
    monkeypatch.setattr(compiled_reader, "MIN_PART_BYTES", 1 << 14)
    monkeypatch.setattr(compiled_reader.pl, "thread_pool_size", lambda: 3)
    assert assert_same(path)


TOKENS = [
    "null", "true", '"7.5"', '" 7.5 "', '"٣"', "1e3", "1.25e-1", "0.12345", "-3", "-0.0",
    "123456789012345678901", "[]", "{}", '[{"ts": 1}]', r'"a\u0301\n"', r'"\ud83d\ude00"', '"é"', '"kernel"',
    '"X"', '"B"', '"i"', '"C"', '""', '"f"', '{"name": "t", "grid": 3}', '{"External id": 3}', "01", "NaN",
    r'"\ud800"', '"attention"',
]  # fmt: skip
KEYS = [
    "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "correlation", "grid", "External id",
    "Input Dims",
]  # fmt: skip


def by_tokens(text: str, dice: random.Random) -> str:
    """Return JSON with one value or key replaced: what comes out is often a document still."""
    places = [i for i, letter in enumerate(text) if letter == ":"]
    at = dice.choice(places)
    if dice.random() < 0.3:
        begin = text.rfind('"', 0, text.rfind('"', 0, at))
        return text[:begin] + f'"{dice.choice(KEYS)}"' + text[at:]
    end = at + 1
    while end < len(text) and text[end] not in ",}\n":
        end += 1
    return text[: at + 1] + " " + dice.choice(TOKENS) + text[end:]


def by_bytes(text: str, dice: random.Random) -> str:
    """Return text with a few letters flipped, put in, or taken out."""
    at, letter = (
        dice.randrange(len(text)),
        chr(dice.choice((0, 9, 10, 32, 34, 44, 92, 123, 125, 0xE9, 0x2028))),
    )
    return dice.choice(
        (
            text[:at] + letter + text[at:],
            text[:at] + letter + text[at + 1 :],
            text[:at] + text[at + dice.randint(1, 30) :],
        )
    )


LAYOUTS: dict[str, Callable[[Any], str]] = {
    "as printed": lambda _: (FIXTURES / "chrome/torch_decode.json").read_text(),
    "compact": lambda document: json.dumps(document, separators=(",", ":")),
    "indented": lambda document: json.dumps(document, indent=1, sort_keys=True),
    "list": lambda document: json.dumps(document["traceEvents"]),
}


@pytest.mark.corpus
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.slow
def test_both_give_the_same_of_damaged_files(layout: str, tmp_path: Path) -> None:
    """What the scanner takes of 80 damaged files it reads as the plain reader does."""
    whole = LAYOUTS[layout](json.loads((FIXTURES / "chrome/torch_decode.json").read_text()))
    dice, path, taken = random.Random(layout), tmp_path / "trace.json", 0
    for number in range(80):
        damage = by_bytes if number % 6 == 0 else by_tokens
        text = whole
        for _ in range(dice.randint(1, 2)):
            text = damage(text, dice)
        path.write_text(text)
        taken += assert_same(path)
    assert 20 < taken < 70


def test_a_variable_turns_the_scanner_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OFF_VARIABLE, "1")
    with pytest.raises(RefusedError, match="no compiled scanner"):
        compiled_reader.read_document(Source.from_path(FIXTURES / "chrome/torch_decode.json"))
