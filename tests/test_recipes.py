"""The recipes of CONTRIBUTING, followed in a copy of the tree: a format, a view, a key and a model family.

Each test writes the new file, adds the one line, and changes no file that the recipe does not name.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from tests.docs import ROOT

pytestmark = pytest.mark.slow

ROOMS = ("capture", "engines", "tracetui")

LOADER = '''\
"""Collapsed stacks, as Brendan Gregg's flame graphs take them: `main;run;gemm 12`, a stack and its samples.

Only the samples are known: no clock, no launches. A sample counts as a millisecond.
"""

import re
from pathlib import Path
from typing import Final

import polars as pl

from capture.native.schema import PATH_SEPARATOR
from capture.run import Run, build_run
from capture.source import Head, Source, decode_text

FORMAT: Final = "collapsed"
PRODUCER: Final = "stackcollapse scripts, py-spy, perf"
HOWTO: Final = "py-spy record --format raw -o stacks.txt -- python run.py"

_LINE: Final = re.compile(r"(?P<path>[^;{}\\[\\]]+(?:;[^;{}\\[\\]]+)+) (?P<samples>\\d+)")
_SAMPLE_NS: Final = 1_000_000
_SCHEMA: Final = {"name": pl.String, "path": pl.String, "count": pl.Int64, "dur": pl.Int64}


def sniff(head: Head) -> bool:
    """Accept a text whose first line is a stack with a number of samples."""
    return _LINE.fullmatch(head.lines[0].strip()) is not None


def load(source: Source) -> list[Run]:
    """Read one run; lines that are not a stack are dropped and counted."""
    rows = []
    for at, raw in source.iter_lines():
        source.log.read += 1
        match = _LINE.fullmatch(decode_text(raw).strip())
        if match is None:
            source.log.drop("no_stack", "lines that are not a stack with samples", at=at)
            continue
        *_, name = frames = match["path"].split(";")
        samples = int(match["samples"])
        rows.append((name, PATH_SEPARATOR.join(frames), samples, samples * _SAMPLE_NS))
    events = pl.DataFrame(rows, schema=_SCHEMA, orient="row").with_columns(
        kind=pl.lit("kernel"), lens=pl.lit("wall")
    )
    return [build_run(Path(source.label).name, {"producer": "collapsed stacks"}, events, source.log)]
'''

VIEW = '''\
"""Tracks: how much time each device, stream or thread has in all."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.look import Look
from tracetui.views import Answer, View


def answer(runs: Sequence[Run], look: Look) -> Answer:
    timed = selection.select_timed(runs[0], look)
    rows = timed.group_by("track").agg(pl.col("dur").sum().alias("total_ns"), pl.len())
    table = rows.sort("total_ns", descending=True).collect()
    return Answer(table, tuple(selection.note_selection(runs[0], look)), key=("track",))


VIEW = View("tracks", "Tracks", answer, needs=frozenset({"dur", "track"}))
'''

FAMILY = '''\
"""Pebble: a family that a test adds, of the common parts alone."""

from engines.models.decoder_config import find_rope_section, read_decoder
from engines.models.config_fields import Family, ModelConfig
from engines.models.spec import Spec

MODEL_TYPE = "pebble"


def read(config: ModelConfig, name: str) -> Spec:
    """Return the model of a config."""
    return read_decoder(config, name, find_rope_section(config))


FAMILY = Family(
    MODEL_TYPE,
    read,
    (Spec("pebble-1m", MODEL_TYPE, 256, 64, 2, 4, 2, 16, 128, eps=1e-5, theta=1e4, max_context=512),),
)
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the rooms."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / "tree" / room, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "tree"


def recipe_files(title: str, name: str) -> set[str]:
    """Return the files that a recipe of CONTRIBUTING names, with the name in place of `<…>`."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split(f"### {title}\n")[1].split("\n### ")[0]
    line = re.search(r"^Files: (.*)$", text, re.MULTILINE)
    assert line
    return {re.sub(r"<\w+>", name, path) for path in re.findall(r"`([^`]+)`", line[1])}


def fingerprints(tree: Path) -> dict[str, str]:
    files = (path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {p.relative_to(tree).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def follow(tree: Path, title: str, name: str, file: str, text: str) -> None:
    """Write the new file and add its name to the registry, and see that the recipe names both."""
    named, before = recipe_files(title, name), fingerprints(tree)
    (tree / file).write_text(text)
    registry = (tree / file).parent / "__init__.py"
    lines = registry.read_text()
    entry = re.compile(
        r"^(?:LOADERS|VIEWS|FAMILIES): Final[^\n]* = ([({])$.*?(?=\n[)}])", re.MULTILINE | re.DOTALL
    )
    begin = entry.search(lines)
    assert begin
    line = f'\n    "{name}": (),' if begin[1] == "{" else f'\n    "{name}",'
    registry.write_text(lines[: begin.end()] + line + lines[begin.end() :])
    after = fingerprints(tree)
    changed = {path for path in after if before.get(path) != after[path]}
    assert changed <= named, changed - named
    assert file in named and registry.relative_to(tree).as_posix() in named


def tracetui(tree: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the copy's command line."""
    return python(tree, "-m", "tracetui", *map(str, arguments))


def python(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, *arguments]
    return subprocess.run(asked, cwd=tree, env=environment(tree), capture_output=True, text=True, timeout=100)


def environment(tree: Path) -> dict[str, str]:
    """Return the environment in which the copy is imported, and keeps what it keeps beside itself."""
    homes = {name: str(tree.parent / "home") for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    return {**os.environ, "PYTHONPATH": str(tree), "TERM": "xterm-256color", **homes}


def test_a_format_is_one_file_and_one_line(tree: Path) -> None:
    assert 40 <= len(LOADER.splitlines()) <= 50
    follow(tree, "A format", "collapsed", "capture/loaders/collapsed.py", LOADER)
    stacks = tree.parent / "stacks.txt"
    stacks.write_text("main;run;gemm 12\nmain;run;softmax 3\nnot a stack\nmain;load 1\n")
    actual = json.loads(tracetui(tree, "report", "kernels", stacks, "--format", "json").stdout)
    assert [(r["name"], r["count"], r["total_ns"]) for r in actual["rows"]] == [
        ("gemm", 12, 12_000_000), ("softmax", 3, 3_000_000), ("load", 1, 1_000_000),
    ]  # fmt: skip
    opened = tracetui(tree, "open", stacks)
    assert opened.returncode == 0 and "lines that are not a stack" in opened.stderr
    assert "main" in tracetui(tree, "report", "tree", stacks).stdout
    assert "py-spy record" in tracetui(tree, "formats").stdout


def test_a_view_is_one_file_and_one_line(tree: Path) -> None:
    assert len(VIEW.splitlines()) <= 22
    follow(tree, "A view", "tracks", "tracetui/views/tracks.py", VIEW)
    profile = tree.parent / "prof.jsonl"
    profile.write_text(
        '{"kind":"run","schema":1,"name":"two"}\n'
        '{"kind":"kernel","name":"a","t":0,"dur":30,"track":"gpu0"}\n'
        '{"kind":"kernel","name":"b","t":0,"dur":50,"track":"gpu1"}\n{"kind":"end"}\n'
    )
    actual = json.loads(tracetui(tree, "report", "tracks", profile, "--format", "json").stdout)
    assert [(r["track"], r["total_ns"]) for r in actual["rows"]] == [("gpu1", 50), ("gpu0", 30)]
    assert tracetui(tree, "report", "tracks", profile, "--format", "csv").stdout.startswith("track,")
    assert re.search(r"^tracks +Tracks$", tracetui(tree, "report", "list").stdout, re.MULTILINE)


@pytest.mark.terminal
def test_a_key_is_a_row_and_a_function(tree: Path) -> None:
    named, before = recipe_files("A key", ""), fingerprints(tree)
    keys, commands = tree / "tracetui/ui/key_table.py", tree / "tracetui/ui/session_commands.py"
    row = '    KeyBinding("J", "only_decode", "decode", "only decode steps", "rows"),\n'
    keys.write_text(keys.read_text().replace("KEYS: Final = (\n", f"KEYS: Final = (\n{row}", 1))
    text = commands.read_text()
    function = (
        'def only_decode(session: Session) -> Session:\n    return session.with_look(phase="decode")\n\n\n'
    )
    place = text.index("COMMANDS: Final")
    text = (
        text[:place] + function + text[place:].replace('"group":', '"only_decode": only_decode, "group":', 1)
    )
    commands.write_text(text)
    assert {path for path, mark in fingerprints(tree).items() if before.get(path) != mark} == named
    child = pexpect.spawn(
        sys.executable, ["-m", "tracetui", "open", "--sample", "decode", "--view", "kernels"],
        cwd=str(tree), env=environment(tree), dimensions=(30, 120), encoding="utf-8", timeout=60,
    )  # fmt: skip
    child.expect("ffn_gate_up")
    child.send("J")
    child.expect("decode only")
    child.send("q")
    child.expect(pexpect.EOF)


def test_a_model_family_is_one_file_and_one_line(tree: Path) -> None:
    pytest.importorskip("torch")
    follow(tree, "A model family", "pebble", "engines/models/pebble.py", FAMILY)
    out = tree.parent / "prof.jsonl"
    asked = ("--model", "pebble-1m", "--weights", "random", "--steps", "2")
    result = tracetui(tree, "record", *asked, "--quiet", "-o", out)
    assert result.returncode == 0, result.stderr
    actual = json.loads(
        tracetui(tree, "report", "kernels", out, "--group-by", "layer", "--format", "json").stdout
    )
    assert {row["layer"] for row in actual["rows"]} >= {0, 1}
    wrong = tracetui(tree, "record", "--model", "peble-1m", "--quiet", "-o", tree.parent / "none.jsonl")
    assert wrong.returncode == 2
