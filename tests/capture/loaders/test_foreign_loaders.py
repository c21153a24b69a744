"""Loaders of other packages: a hand-made package is found by the real command line, a broken one is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import homes
from tests.conftest import FIXTURES
from tests.house import ROOT

LOADER = '''
"""Acme's timeline: `acme`, then a line `kernel nanoseconds` per launch."""
import polars as pl
from capture.run import build_run

FORMAT, PRODUCER, HOWTO = "acme timeline", "Acme's profiler", "acme --trace run.acme"

def sniff(head):
    return head.text.startswith("acme")

def load(source):
    rows = [line.split() for line in source.read_text().splitlines()[1:]]
    source.log.read = len(rows)
    durations = {"name": [name for name, _ in rows], "dur": [int(ns) for _, ns in rows]}
    events = pl.DataFrame(durations).with_columns(kind=pl.lit("kernel"), lens=pl.lit("gpu"))
    return [build_run("acme", {"producer": "acme"}, events, source.log)]
'''
BROKEN = {
    "import": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "attribute": (LOADER.replace("def load", "def read"), "it has no load"),
    "sniff": (
        LOADER.replace("return head", "return [head][1]"),
        "its sniff raised IndexError: list index out",
    ),
}


def install(folder: Path, code: str) -> Path:
    """Write a package `acme-profiles 1.2` as pip would install it, and a file in its format."""
    folder.mkdir()
    (folder / "acme_profiles.py").write_text(code)
    info = folder / "acme_profiles-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-profiles\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[tracetui.loaders]\nacme = acme_profiles\n")
    file = folder / "run.acme"
    file.write_text("acme\ngemm 70\nnorm 20\ngemm 50\n")
    return file


def run_cli(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"} | homes(folder)
    command = [sys.executable, "-m", "tracetui", *map(str, arguments)]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=100)


def test_foreign_loader_reads_its_format(tmp_path: Path) -> None:
    file = install(tmp_path / "site", LOADER)
    report = run_cli(file.parent, "report", "kernels", file, "--format", "json")
    assert report.returncode == 0, report.stderr
    assert "gemm" in report.stdout and "norm" in report.stdout
    assert json.loads(report.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "md"])
def test_formats_list_foreign_loaders_with_their_package(form: str, tmp_path: Path) -> None:
    file = install(tmp_path / "site", LOADER)
    listed = run_cli(file.parent, "formats", "--format", form).stdout
    assert "acme timeline" in listed and "acme-profiles 1.2 (acme_profiles)" in listed
    assert "loader 'acme' of acme-profiles 1.2 (acme_profiles)\n" in run_cli(file.parent, "doctor").stdout


@pytest.mark.corpus
@pytest.mark.parametrize(("code", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_foreign_loader_is_named_and_left_out(code: str, reason: str, tmp_path: Path) -> None:
    file = install(tmp_path / "site", code)
    table = file.with_name("table.csv")
    table.write_text("name,duration_us\ngemm,7\n")
    for command in (("formats",), ("doctor",), ("doctor", table)):
        result = run_cli(file.parent, *command)
        assert (result.returncode, reason in result.stdout, "acme-profiles 1.2" in result.stdout) == (
            0,
            True,
            True,
        ), result
    unknown = run_cli(file.parent, "report", "kernels", file)
    assert unknown.returncode == 3 and reason in unknown.stderr


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return 7", "returned no list of runs"),
        ("raise KeyError('x')", "report it to the authors of acme-profiles 1.2"),
        ("raise SystemExit(0)", "report it to the authors of acme-profiles 1.2"),
    ],
)
def test_foreign_loader_that_fails_to_load_gives_one_error(body: str, reason: str, tmp_path: Path) -> None:
    file = install(tmp_path / "site", LOADER.replace("    rows =", f"    {body}\n    rows ="))
    result = run_cli(file.parent, "report", "kernels", file)
    assert result.returncode == 3 and reason in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_foreign_loader_takes_generic_tables_but_none_of_our_formats(tmp_path: Path) -> None:
    greedy = LOADER.replace('return head.text.startswith("acme")', "return bool(head.raw)")
    file = install(tmp_path / "site", greedy)
    file.with_name("table.csv").write_text("name,duration_us\ngemm,7\n")
    ours = run_cli(file.parent, "doctor", FIXTURES / "chrome" / "torch_decode.json")
    assert "acme timeline" not in ours.stdout
    assert "acme timeline" in run_cli(file.parent, "doctor", file).stdout
    assert "read as acme timeline" in run_cli(file.parent, "doctor", "table.csv").stderr


@pytest.mark.slow
def test_entry_points_are_looked_up_only_when_needed(tmp_path: Path) -> None:
    code = (
        "import sys; from capture.load_runs import load\n"
        "from capture.plugins import load_entry_points as points\n"
        "load(sys.argv[1], cache=False); print(points.cache_info().currsize)"
    )
    (tmp_path / "table.csv").write_text("name,duration_us\ngemm,7\n")
    for file, groups in ((FIXTURES / "chrome" / "torch_decode.json", "0"), (tmp_path / "table.csv", "1")):
        command = [sys.executable, "-c", code, str(file)]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert result.stdout.strip() == groups
