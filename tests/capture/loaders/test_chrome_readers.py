"""The two readers of Chrome traces agree, on whole files and on damaged ones."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from capture.loaders.chrome import any_json, fast_scan
from capture.loaders.chrome.tables import Trace
from capture.source import Source
from tests.capture.loaders._chrome_samples import TORCH_LAYOUT
from tests.conftest import document


def comparable(trace: Trace) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], dict[str, Any], bool]:
    columns = [trace.complete.column(name) for name in ("cat", "name", "place")]
    complete = trace.complete.rows.select("t", "dur", "correlation", *columns)
    others = [
        (e.ph, e.cat, e.title, e.place, bytes(e.ts), bytes(e.args).replace(b" ", b"").replace(b"\n", b""))
        for e in trace.others
    ]
    return sorted(complete.iter_rows(), key=str), sorted(others, key=str), trace.header, trace.truncated


def both(path: Path) -> tuple[Any, Any]:
    return comparable(fast_scan.read(Source.of(path))), comparable(any_json.read(Source.of(path)))


@pytest.mark.parametrize("name", TORCH_LAYOUT)
def test_both_readers_agree_on_samples(name: str) -> None:
    lines, parsed = both(document(name))
    assert lines == parsed


def test_both_readers_agree_on_the_new_layout(printed: Path, tmp_path: Path) -> None:
    lines, parsed = both(printed)
    assert lines == parsed
    zipped = tmp_path / "trace.json.gz"
    zipped.write_bytes(gzip.compress(printed.read_bytes()))
    assert comparable(fast_scan.read(Source.of(zipped))) == parsed


def test_both_readers_agree_where_every_kernel_has_braces_in_its_name(printed: Path, tmp_path: Path) -> None:
    path = tmp_path / "lambdas.json"
    path.write_text(printed.read_text().replace("void at::native::", "{lambda()#1}::operator(){{int}#2} "))
    lines, parsed = both(path)
    assert lines == parsed
    kernels = [name for _, _, linked, cat, name, _ in lines[0] if cat == "kernel" and linked is not None]
    assert kernels and all(name.startswith("{lambda()#1}::operator(){{int}#2} ") for name in kernels)


HARM = {
    "N/A": ('"dur": ', '"dur": N/A, "x": '),
    "a name with bare quotes": ('"name": "aten::mm"', '"name": "{"a": 1}"'),
    "a bad escape": ('"name": "aten::mm"', r'"name": "a\q"'),
    "a control character": ('"name": "aten::mm"', '"name": "a\x02b"'),
    "an escape": ('"name": "aten::mm"', r'"name": "\u00e9\n\ud800"'),
    "other key order": ('"ph": "X",\n    "cat": "cpu_op",', '"cat": "cpu_op",\n    "ph": "X",'),
    "a duration as text": ('"dur": ', '"dur": "7.5", "x": '),
    "no duration": ('"dur": ', '"nodur": '),
    "a null duration": ('"dur": ', '"dur": null, "x": '),
    "a text pid": ('"pid": 1234', '"pid": "Spans"'),
    "braces in a name": ('"name": "aten::mm"', '"name": "f(){lambda(int)#1}::g{{}"'),
    "braces in the name of a kernel": ('"name": "void at', '"name": "{lambda()#1}{void at'),
    "an object among the arguments": ('"queued": 0', '"queued": {"a": "}{"}'),
    "a huge start": ('"ts": ', '"ts": 1669329643132548123, "x": '),
}


@pytest.mark.parametrize("harm", HARM)
def test_both_readers_agree_on_a_damaged_event(printed: Path, tmp_path: Path, harm: str) -> None:
    """One event in the middle is spoilt as producers spoil them; the rest must not notice."""
    text = printed.read_text()
    where = text.index(HARM[harm][0], len(text) // 2)
    spoilt = tmp_path / "spoilt.json"
    spoilt.write_text(text[:where] + text[where:].replace(*HARM[harm], 1))
    lines, parsed = both(spoilt)
    assert lines == parsed
    whole = any_json.read(Source.of(printed)).complete.rows.height
    assert len(parsed[0]) in (whole, whole - 1)
