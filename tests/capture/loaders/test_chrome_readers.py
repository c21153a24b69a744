"""Both readers of Chrome traces agree on intact files, and on damaged ones, which lose one event at most."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capture.loaders.chrome import lenient_reader, trace
from capture.loaders.chrome.trace_model import Trace
from capture.source import Source
from tests.capture.loaders._chrome_samples import TORCH_LAYOUT
from tests.conftest import document


def comparable(trace: Trace) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], dict[str, Any], bool]:
    columns = [trace.complete.expand_label(name) for name in ("cat", "name", "thread")]
    complete = trace.complete.rows.select("t", "dur", "correlation", "external_id", *columns)
    others = [
        (e.ph, e.cat, e.title, e.thread, bytes(e.ts), bytes(e.args).replace(b" ", b"").replace(b"\n", b""))
        for e in trace.others
    ]
    return sorted(complete.iter_rows(), key=str), sorted(others, key=str), trace.header, trace.truncated


def read_by_both(path: Path) -> tuple[Any, Any]:
    """Read a file with the fastest reader that supports it, and with the lenient one."""
    fastest, lenient = trace.read_document, lenient_reader.read_document
    return comparable(fastest(Source.from_path(path))), comparable(lenient(Source.from_path(path)))


@pytest.mark.parametrize("name", TORCH_LAYOUT)
def test_readers_agree_on_samples(name: str) -> None:
    fastest, lenient = read_by_both(document(name))
    assert fastest == lenient


def test_readers_agree_on_printed_and_zipped_traces(printed: Path, tmp_path: Path) -> None:
    fastest, lenient = read_by_both(printed)
    assert fastest == lenient
    zipped = tmp_path / "trace.json.gz"
    zipped.write_bytes(gzip.compress(printed.read_bytes()))
    assert read_by_both(zipped) == (lenient, lenient)


def test_readers_agree_on_kernel_names_with_braces(printed: Path, tmp_path: Path) -> None:
    path = tmp_path / "lambdas.json"
    path.write_text(printed.read_text().replace("void at::native::", "{lambda()#1}::operator(){{int}#2} "))
    fastest, lenient = read_by_both(path)
    assert fastest == lenient
    kernels = [name for _, _, linked, _, cat, name, _ in fastest[0] if cat == "kernel" and linked is not None]
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


@pytest.mark.corpus
@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_event_leaves_all_others_intact(printed: Path, tmp_path: Path, harm: str) -> None:
    """One event in the middle is damaged as producers damage them: it is read differently, or lost."""
    text = printed.read_text()
    where = text.index(HARM[harm][0], len(text) // 2)
    damaged = tmp_path / "damaged.json"
    damaged.write_text(text[:where] + text[where:].replace(*HARM[harm], 1))
    fastest, lenient = read_by_both(damaged)
    assert fastest == lenient
    intact = comparable(lenient_reader.read_document(Source.from_path(printed)))
    lost, added = Counter(intact[0]) - Counter(lenient[0]), Counter(lenient[0]) - Counter(intact[0])
    assert lost.total() <= 1 and added.total() <= lost.total()
    assert (len(lenient[1]), *lenient[2:]) == (len(intact[1]), *intact[2:])
