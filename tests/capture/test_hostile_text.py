"""Hostile tables and texts: each does what its entry in the list expects, quickly and in little memory."""

import json
import time
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.open import load
from tests.conftest import SHARED, shared

MANIFEST = SHARED / "samples" / "hostile" / "MANIFEST.jsonl"
ENTRIES = [json.loads(line) for line in MANIFEST.read_text().splitlines()] if MANIFEST.exists() else []
TEXTS = [(e["file"], e["expect"]) for e in ENTRIES if e["file"].endswith((".csv", ".txt"))]
SUMS_US = {  # by hand, from the bytes of the files; a duration without a unit is taken as µs
    "bom.csv": 1, "cr.csv": 1, "nul.csv": 3, "ragged.csv": 2, "semicolon.csv": 1.5, "underscore.csv": 0,
    "field_200k.csv": 3, "unclosed_quote.csv": 100_000,
}  # fmt: skip


@pytest.mark.parametrize(("name", "expect"), TEXTS)
def test_each_does_what_is_expected(name: str, expect: str, tmp_path: Path) -> None:
    path = made(tmp_path) if name == "longline.txt" else shared(f"samples/hostile/{name}")
    start = time.process_time()
    if expect == "refuse":
        with pytest.raises(UnreadableError) as refused:
            load(path, cache=False)
        assert "\n" not in str(refused.value)
    else:
        (run,) = load(path, cache=False)
        assert run.log.lost_data == (expect == "partial")
        total = run.events["dur"].sum() if run.has("dur") else 0
        assert total == SUMS_US[name] * 1000
        names = run.events["name"].cast(pl.String).to_list()
        assert all(text.isprintable() for text in names)
    assert time.process_time() - start < 2


def made(folder: Path) -> Path:
    path = folder / "longline.txt"
    path.write_bytes(b"x" * 20_000_000)
    return path
