"""Views of other packages, registered by entry points, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import polars as pl
from tracetui.views import Answer, View

def answer(runs, look):
    if look.filter == "fail":
        raise RuntimeError("no luck")
    return Answer(pl.DataFrame({"name": [r.name for r in runs], "rows": [r.events.height for r in runs]}))

VIEW = View("heat", "Heat", answer, columns=("name", "rows"))
TAKEN = View("kernels", "Mine", answer)
"""
POINTS = """\
[tracetui.views]
heat = my_heat:VIEW
kernels = my_heat:TAKEN
other = my_heat:VIEW
plain = my_heat:MISSING
text = my_heat:__doc__
"""
PROBLEMS = {
    "kernels": "there is already a view of this name",
    "other": "its view is called 'heat'",
    "plain": "AttributeError: module 'my_heat' has no attribute 'MISSING'",
    "text": "it is not a tracetui.views.View",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package, as pip leaves it."""
    info = tmp_path / "my_heat-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-heat\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "my_heat.py").write_text(MODULE)
    return tmp_path


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "tracetui", *words]
    return subprocess.run(command, env=env | {"XDG_STATE_HOME": str(site)}, capture_output=True, text=True)


def test_report_prints_foreign_view(site: Path) -> None:
    result = run(site, "report", "heat", "sample:decode", "--format", "csv")
    assert result.returncode == 0, result.stderr
    heading, row = result.stdout.splitlines()
    assert heading == "name,rows" and int(row.rpartition(",")[2]) > 1000


def test_foreign_view_is_listed_and_unusable_ones_are_named(site: Path) -> None:
    result = run(site, "report", "list")
    assert result.returncode == 0 and result.stdout.splitlines()[-1].split() == ["heat", "Heat"]
    for name, problem in PROBLEMS.items():
        assert f"view '{name}' of my-heat 1.2 (my_heat:" in result.stderr
        assert f"is left out: {problem}" in result.stderr


def test_doctor_names_foreign_views_and_their_package(site: Path) -> None:
    result = run(site, "doctor")
    assert "view 'heat' of my-heat 1.2 (my_heat:VIEW)\n" in result.stdout
    assert all(f"is left out: {problem}" in result.stdout for problem in PROBLEMS.values())


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("view", "words", "sentence"),
    [
        ("plain", (), "the view 'plain' of my-heat 1.2 (my_heat:MISSING) cannot be loaded"),
        (
            "heat",
            ("--filter", "fail"),
            "the view 'heat' of my-heat 1.2 (my_heat:VIEW) failed (RuntimeError: no luck)",
        ),
        ("heath", (), "no view is called 'heath'; did you mean heat"),
    ],
    ids=["unusable", "failing", "misspelt"],
)
def test_error_of_foreign_view_names_its_package(
    view: str, words: tuple[str, ...], sentence: str, site: Path
) -> None:
    result = run(site, "report", view, "sample:decode", *words)
    assert result.returncode in (2, 3) and sentence in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and "internal error" not in result.stderr


def test_help_and_completion_know_foreign_view(site: Path) -> None:
    assert run(site, "help", "heat").stdout.startswith("# ")
    assert "heat" in run(site, "completion", "bash").stdout


def test_bundled_views_load_without_reading_entry_points() -> None:
    code = (
        "import importlib.metadata\n"
        "importlib.metadata.entry_points = None\n"
        "import tracetui.cli, tracetui.views, tracetui.verbs.live\n"
        "print(tracetui.views.load_view('kernels').name)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["kernels"], result.stderr
