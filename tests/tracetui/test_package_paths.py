"""Among strangers: modules of the user's that have our names neither hide ours nor are hidden by them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capture.load_runs import load
from tests.conftest import FIXTURES

ROOT = Path(__file__).parent.parent.parent
PROFILE = FIXTURES / "native" / "flat.jsonl"

OWN = """
import capture, engines, torch
model = torch.nn.Linear(8, 8)
for _ in range(5):
    model(torch.randn(2, 8))
print("own", capture.X, engines.X)
"""

RECORDS = """
import sys
from tracetui import Emitter, Recorder
import capture, engines
with Recorder(sys.argv[1]) as recorder, recorder.step(), recorder.span("part"):
    pass
print(capture.X, engines.X, Emitter.__name__, {"polars", "torch", "msgspec"} & set(sys.modules))
"""


@pytest.fixture(params=["checkout", "wheel"], scope="module")
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that holds `tracetui`: a checkout, or one laid out as an installed wheel."""
    if request.param == "checkout":
        return ROOT
    folder = tmp_path_factory.mktemp("site-packages")
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tracetui", folder / "tracetui", ignore=without_caches)
    for room in ("capture", "engines"):
        shutil.copytree(ROOT / room, folder / "tracetui" / "_packages" / room, ignore=without_caches)
    return folder


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a folder of a user's with a module `capture` and a package `engines` that are not ours."""
    (tmp_path / "capture.py").write_text("X = 7\n")
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "__init__.py").write_text("X = 8\n")
    (tmp_path / "engines" / "__main__.py").write_text("raise SystemExit('a stranger ran')\n")
    return tmp_path


def run(folder: Path, *arguments: str | Path, path: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder with these entries first on its path."""
    nowhere = {"XDG_STATE_HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **nowhere, "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_a_report_in_a_folder_with_our_names(installed: Path, foreign: Path) -> None:
    report = ("-m", "tracetui", "report", "kernels", PROFILE, "--format", "json")
    result = run(foreign, *report, path=[installed])
    assert result.returncode == 0, result.stderr
    assert [row["name"] for row in json.loads(result.stdout)["rows"]] == ["mlp.down", "attention"]


def test_the_command_with_a_foreign_distribution_first_on_the_path(installed: Path, foreign: Path) -> None:
    """Also where something has imported the foreign modules before us."""
    code = (
        "import capture, engines, sys; from tracetui.__main__ import main; code = main();"
        "print(sys.modules['capture'].__file__, sys.modules.get('engines')); sys.exit(code)"
    )
    result = run(Path("/"), "-c", code, "report", "kernels", PROFILE, path=[foreign, installed])
    assert result.returncode == 0, result.stderr
    place, engines = result.stdout.splitlines()[-1].rsplit(" ", 1)
    assert Path(place).is_relative_to(installed) and engines == "None"


@pytest.mark.corpus
@pytest.mark.parametrize("module", ["tracetui.engine", "tracetui"])
def test_the_bundled_engine_is_ours(installed: Path, foreign: Path, module: str) -> None:
    verb = ["record"] if module == "tracetui" else []
    option = "-o" if module == "tracetui" else "--out"
    asked = (*verb, "--model", "gemma-3-1", option, "prof.jsonl")
    result = run(foreign, "-m", module, *asked, path=[foreign, installed])
    assert result.returncode == 2
    assert "did you mean gemma-3-1b" in result.stderr and "a stranger ran" not in result.stderr


@pytest.mark.corpus
@pytest.mark.slow
def test_a_recorded_program_imports_its_own_modules_and_is_recorded(installed: Path, foreign: Path) -> None:
    """With the counters of the sampler, which runs beside it."""
    pytest.importorskip("torch")
    (foreign / "own.py").write_text(OWN + "import time; time.sleep(1.5)\n")
    out = foreign / "prof.jsonl"
    record = ("-m", "tracetui", "record", "-o", out, "--", sys.executable, "own.py")
    result = run(foreign, *record, path=[foreign, installed])
    assert result.returncode == 0 and "recorded 5 steps" in result.stderr, result.stderr
    (recording,) = load(out, cache=False)
    assert recording.events.filter(kind="step").height == 5
    assert "process_mem_used" in set(recording.events.filter(kind="counter")["name"].cast(str))


def test_a_recorder_in_a_program_with_modules_of_our_names(installed: Path, foreign: Path) -> None:
    result = run(foreign, "-c", RECORDS, "prof.jsonl", path=[foreign, installed])
    assert (result.stdout, result.stderr) == ("7 8 Emitter set()\n", "")
    (recording,) = load(foreign / "prof.jsonl", cache=False)
    assert recording.events.filter(kind="kernel").height == 1


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["capture.native.emit", "tracetui"])
@pytest.mark.slow
def test_a_program_that_records_itself_is_not_recorded_twice(name: str, tmp_path: Path) -> None:
    """Whichever copy of the emitter it has imported."""
    pytest.importorskip("torch")
    out = tmp_path / "prof.jsonl"
    code = (
        f"import os, torch; from {name} import Emitter\n"
        "emitter = Emitter(os.environ['TRACETUI_OUT']); emitter.run('its own')\n"
        "emitter.step(1, 0, 10); torch.nn.Linear(2, 2)(torch.ones(2)); emitter.end()\n"
    )
    result = run(
        tmp_path, "-m", "tracetui", "record", "-o", out, "--", sys.executable, "-c", code, path=[ROOT]
    )
    assert result.returncode == 0, result.stderr
    (recording,) = load(out, cache=False)
    assert recording.name == "its own" and recording.events.filter(kind="step").height == 1


def test_the_wheel_has_one_top_level_package(tmp_path: Path) -> None:
    """Built as pip builds it; needs the build back end, which a development environment may lack."""
    pytest.importorskip("hatchling", reason="hatchling is not installed here")
    from hatchling.builders.wheel import WheelBuilder

    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    result = run(tmp_path, "-m", "zipfile", "-l", wheel, path=[])
    names = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tracetui"}
    for room in ("capture", "engines"):
        assert (
            f"tracetui/_packages/{room}/__init__.py" in names and f"tracetui/_rooms/{room}/py.typed" in names
        )
    assert (
        "tracetui/_packages/capture/record/site/sitecustomize.py" in names and "tracetui/ui/app.tcss" in names
    )
