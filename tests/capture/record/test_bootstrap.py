"""The recorder waits for the import of torch: whatever is asked first, and wherever torch lies."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import capture.record
from tests.capture.record.test_pythons import pythons

HERE = Path(__file__).parent
SITE = Path(capture.record.__file__).parent / "site"
ASKS = "import importlib.util as u; assert u.find_spec('torch')"
CALLS = """
import torch
class Model(torch.nn.Module):
    def forward(self, ids):
        return ids
model = Model()
for length in (5, 1, 1):
    model(torch.Ids(1, length))
"""
FIRST = {
    "nothing": "",
    "a question": ASKS,
    "questions": f"{ASKS}\nassert u.find_spec('torch')",
    "another module of its folder": "import beside",
    "an import that fails": """
import os
os.environ['FAILS'] = '1'
try:
    import torch
except ImportError:
    del os.environ['FAILS']
""",
    "its own loading": """
import importlib.util as u, sys
spec = u.find_spec('torch')
sys.modules['torch'] = u.module_from_spec(spec)
spec.loader.exec_module(sys.modules['torch'])
""",
    "a finder before ours": """
import importlib.util as u, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == 'torch':
            sys.meta_path.remove(self)
            return u.find_spec(name)
sys.meta_path.insert(0, Finder())
""",
}


def make_torch(folder: Path, *, packed: bool) -> Path:
    """Return a folder, or a zip file, with the stand-in of torch and a module beside it."""
    files = {"beside.py": "", **{
        str(path.relative_to(HERE / "fake_torch")): path.read_text()
        for path in sorted((HERE / "fake_torch").rglob("*.py"))
    }}  # fmt: skip
    first = "import os\nif 'FAILS' in os.environ:\n    raise ImportError\n"
    files["torch/__init__.py"] = first + files["torch/__init__.py"]
    if packed:
        with zipfile.ZipFile(folder / "all.zip", "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return folder / "all.zip"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def record(
    folder: Path, program: str, *options: str, packed: bool = False, python: str = sys.executable
) -> str:
    """Run a program with the recorder, and return its notes."""
    account = folder / "account"
    account.mkdir()
    path = os.pathsep.join([str(SITE), str(make_torch(folder, packed=packed))])
    env = {"PYTHONPATH": path, "TRACETUI_OUT": str(folder / "out.jsonl"), "TRACETUI_ACCOUNT": str(account)}
    command = [python, *options, "-c", program]
    result = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    (notes,) = account.glob("process-*")
    return notes.read_text()


@pytest.mark.corpus
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize("first", FIRST)
def test_a_program_is_recorded_whatever_it_does_first(first: str, packed: bool, tmp_path: Path) -> None:
    assert "seen 3 3 1" in record(tmp_path, f"{FIRST[first]}\n{CALLS}", packed=packed)


@pytest.mark.corpus
@pytest.mark.parametrize("python", list(pythons()) or [sys.executable])
def test_a_question_before_an_import_from_a_zip_is_harmless_on_each_python(
    python: str, tmp_path: Path
) -> None:
    program = f"{ASKS}\nimport beside\n{CALLS}"
    assert "seen 3 3 1" in record(tmp_path, program, packed=True, python=python)


def test_a_program_without_its_own_folder_on_the_path_is_recorded(tmp_path: Path) -> None:
    assert "seen 3 3 1" in record(tmp_path, ASKS + CALLS, "-P")


def test_a_question_changes_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as u; before = list(sys.meta_path)\n"
        "assert u.find_spec('torch') == u.find_spec('torch')\n"
        "assert sys.meta_path == before and 'torch' not in sys.modules"
    )
    assert "torch" not in record(tmp_path, program)


WIPES = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'tracetui' not in type(f).__module__]"


def test_an_import_without_the_hook_is_noted_as_missed(tmp_path: Path) -> None:
    notes = record(tmp_path, WIPES + CALLS)
    assert "missed torch" in notes and "seen" not in notes


def test_no_import_is_noted_as_missed_that_was_recorded_or_never_made(tmp_path: Path) -> None:
    assert "missed" not in record(tmp_path, CALLS + WIPES)


def test_a_torch_that_was_imported_before_us_is_recorded(tmp_path: Path) -> None:
    assert "seen 3 3 1" in record(tmp_path, f"import torch, site\nsite.main(){CALLS}", "-S")


def test_a_module_of_the_program_with_the_name_of_torch_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("own = True\n")
    assert "torch" not in record(tmp_path, "import torch; assert torch.own", packed=True)


def test_what_a_program_does_at_its_end_is_recorded_though_it_was_registered_first(tmp_path: Path) -> None:
    program = f"import atexit\natexit.register(lambda: [model(torch.Ids(1, 1)) for _ in range(4)])\n{CALLS}"
    assert "seen 7 7 1" in record(tmp_path, program)
