"""Which loaders are asked and imported: the words of the registry hide none that would claim an input."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from capture.loaders import LOADERS, is_candidate
from capture.source import Head, Source
from tests.capture.test_fixtures import FILES
from tests.conftest import FIXTURES, SHARED

SAMPLES = [p for folder in ("samples", "seeds") for p in sorted((SHARED / folder).rglob("*")) if p.is_file()]


def heads(path: Path) -> list[Head]:
    """Return the head of a file, and the same in other letters and other bytes."""
    head = Source.from_path(path).head
    if b"\0" in head.raw:
        return [head]
    text = head.text
    written = [text.upper(), text.lower(), text.swapcase(), f"noise\n{text}", text.replace("_", " ")]
    return [
        head,
        Head(text.encode("utf-16"), head.is_complete),
        *(Head(each.encode(), head.is_complete) for each in written),
    ]


@pytest.mark.corpus
@pytest.mark.parametrize("path", [*FILES, *SAMPLES], ids=lambda path: path.name)
def test_a_loader_that_is_not_asked_would_not_claim(path: Path) -> None:
    for head in heads(path):
        hidden = [name for name in LOADERS if not is_candidate(name, head) and name != "plain.generic_table"]
        assert [n for n in hidden if import_module(f"capture.loaders.{n}").sniff(head)] == []


SAY = "import sys; from capture.load_runs import load; load(sys.argv[1]); print(*sys.modules)"


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("chrome/torch_decode.json", {"chrome"}),
        ("native/flat.jsonl", {"native"}),
        ("exported_parquet/columns.parquet", {"exported_parquet"}),
        ("nsys/two_processes.sqlite", {"nsys"}),
        ("metallic/recording.jsonl", {"metallic"}),
    ],
)
def test_only_the_loader_that_reads_is_imported(file: str, own: set[str]) -> None:
    path = FIXTURES / file
    actual = subprocess.run(
        [sys.executable, "-c", SAY, path], capture_output=True, text=True, check=True
    ).stdout
    names = [m.split(".")[2] for m in actual.split() if m.startswith("capture.loaders.")]
    assert {name for name in names if not name.startswith("_")} == own
