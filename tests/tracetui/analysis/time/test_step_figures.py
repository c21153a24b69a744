"""Tokens, speeds and contexts of steps, over every fixture, sample and seed."""

import gzip
import re
import zlib
from pathlib import Path

import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from tests.capture.test_fixtures import FILES
from tests.tracetui.views.test_plausible_figures import CORPUS
from tracetui.look import Look
from tracetui.views import ask, load_view

EVERY_FILE = pytest.mark.parametrize(
    "path", [*FILES, *CORPUS], ids=lambda path: f"{path.parent.name}/{path.name}"
)
# vLLM: execute_TOKENS_context_N(sqTsk…)_generation_M(sq…sk…)
SERVED = re.compile(
    r"^execute_(\d+)_context_(\d+)\(sq(\d+)sk(\d+)\w*\)_generation_(\d+)\(sq(\d+)sk(\d+)\w*\)$"
)


@pytest.mark.corpus
@EVERY_FILE
def test_tokens_are_the_speed_times_the_time_that_it_is_of(path: Path) -> None:
    """Of the wall time of a step; where the host is no measure, of what its device took."""
    try:
        runs = load(path, cache=False)
    except CaptureError:
        pytest.skip("holds no profile")
    for run in runs:
        rows = ask(load_view("steps"), [run], Look()).rows
        if "tokens_per_s" not in rows.columns:
            continue
        for row in rows.drop_nulls(["tokens", "tokens_per_s"]).iter_rows(named=True):
            device_ns = (row.get("busy_ns") or 0) + (row.get("idle_ns") or 0)
            times = [ns for ns in (row.get("wall_ns"), device_ns, row.get("total_ns")) if ns]
            tokens = [row["tokens_per_s"] * ns / 1e9 for ns in times]
            assert any(abs(t - row["tokens"]) <= 1e-3 * row["tokens"] for t in tokens), row


@pytest.mark.corpus
@EVERY_FILE
def test_contexts_are_those_of_the_annotations(path: Path) -> None:
    """Tokens in the cache for each sequence: their sum is stated, as sk, beside the number of sequences."""
    raw = path.read_bytes()
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode(errors="replace")
    except (EOFError, OSError, zlib.error):
        pytest.skip("is cut or damaged")
    names = set(re.findall(r'"name": ?"(execute_[^"]*)"', text))
    stated = {match.groups() for name in names if (match := SERVED.match(name))}
    if not stated:
        pytest.skip("no annotation states a context")
    (run,) = load(path, cache=False)
    expected = set()
    for words in stated:
        tokens, prompts, _, prompt_sk, sequences, _, sequence_sk = map(int, words)
        batch = prompts + sequences
        expected.add((tokens, batch, round((prompt_sk + sequence_sk) / batch)))
    rows = ask(load_view("steps"), [run], Look()).rows
    assert set(rows.select("tokens", "batch", "context").rows()) == expected
