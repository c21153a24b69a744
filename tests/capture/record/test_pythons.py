"""What runs inside a program of the user's reads on Python 3.8, works on each that is here, and is small."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import polars as pl
import pytest

import capture.record
from capture.load_runs import load
from tests.house import ROOT, Checkout

HERE = Path(__file__).parent
SITE = Path(capture.record.__file__).parent / "site"
MINORS = (8, 9, 10, 11, 12, 13, 14)

PROGRAM = """
import sys, threading, torch

class Inner(torch.nn.Module):
    def forward(self, x):
        return x

class Model(torch.nn.Module):
    def __init__(self):
        self.layer = Inner()

    def forward(self, ids):
        return self.layer(ids)

model = Model()
def generate():
    for length in (5, 1, 1, 1):
        model(torch.Ids(2, length))

generate()
thread = threading.Thread(target=generate)
thread.start()
thread.join()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"polars", "msgspec", "tracetui", "capture"}))
print(sum("capture/record/site" in entry for entry in sys.path))
"""


@cache
def map_imports() -> dict[Path, frozenset[str]]:
    return {module.path: module.imports for module in Checkout().modules}


def injected() -> list[Path]:
    """Return every file that a watched program loads, followed from what begins it."""
    watchers = [
        f"capture.record.{name}" for name in ("bootstrap", "attach_running", "patch_torch", "llama_cpp")
    ]
    waiting, found = watchers, set()
    while waiting:
        name = waiting.pop()
        path = ROOT / f"{name.replace('.', '/')}.py"
        if path in found or not path.exists():
            continue
        found.add(path)
        waiting += [n for n in map_imports()[path] if n.startswith("capture.")]
    packages = [ROOT / "capture" / room / "__init__.py" for room in ("", "native", "record")]
    return [SITE / "sitecustomize.py", SITE.parent / "injected.py", *packages, *sorted(found)]


def pythons() -> Iterator[str]:
    """Yield the newest interpreter of each minor version that lies on this machine."""
    folder = Path.home() / ".pyenv" / "versions"
    for minor in MINORS:
        here = sorted(folder.glob(f"3.{minor}.*/bin/python3"))
        if here:
            yield str(here[-1])


def test_what_is_loaded_reads_on_python_3_8() -> None:
    paths = injected()
    assert len(paths) > 10
    for path in paths:
        ast.parse(path.read_text(), path, feature_version=(3, 8))


def test_what_is_loaded_is_of_the_standard_library() -> None:
    """But for torch, which the program has imported by itself."""
    for path in injected():
        names = {name.partition(".")[0] for name in map_imports()[path]}
        assert names - set(sys.stdlib_module_names) <= {"capture", "torch", "sitecustomize"}, path


@pytest.mark.parametrize("python", list(pythons()) or [sys.executable])
def test_a_program_is_watched_on_each_python_that_is_here(python: str, tmp_path: Path) -> None:
    out, account = tmp_path / "out.jsonl", tmp_path / "account"
    account.mkdir()
    path = os.pathsep.join([str(SITE), str(HERE / "fake_torch")])
    env = {"PYTHONPATH": path, "TRACETUI_OUT": str(out), "TRACETUI_ACCOUNT": str(account)}
    result = subprocess.run(
        [python, "-c", PROGRAM], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("[]\n0\n", "")
    (run,) = load(out, cache=False)
    steps = run.events.filter(kind="step")
    assert sorted(steps["step"]) == list(range(8))
    for track in (None, "thread 2"):
        own = steps.filter(steps["track"].cast(str).eq_missing(pl.Series([track])))
        assert own.select("phase", "tokens", "batch", "context").rows() == [
            ("prefill", 2, 2, 5), *(("decode", 2, 2, 5 + n) for n in (1, 2, 3)),
        ]  # fmt: skip
    (actual,) = account.glob("process-*")
    assert "seen 8 8 2" in actual.read_text()


LOOP = """
import sys, threading, torch

class Model(torch.nn.Module):
    def forward(self, ids):
        return ids

model, length = Model(), 5
print("here", flush=True)
told = sys.stdin.readline()
plain, known = torch.nn.Module.__call__, threading.active_count()
exec(open(told.strip()).read(), {})
while torch.nn.Module.__call__ is plain:
    pass
for length in (5, 1, 1, 1, 5):
    model(torch.Ids(2, length))
print("watched", threading.active_count() - known, flush=True)
while torch.nn.Module.__call__ is not plain:
    pass
print(sorted({name.partition(".")[0] for name in sys.modules} & {"polars", "msgspec", "tracetui", "capture"}))
print(sorted(name for name in globals() if "tracetui" in name or name in ("text", "file")))
"""


@pytest.mark.corpus
@pytest.mark.parametrize("python", list(pythons()) or [sys.executable])
def test_a_program_that_runs_is_attached_to_on_each_python(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door is played: the program executes the text by itself, as Python 3.14 would."""
    from tracetui.process import AttachedProcess, AttachTarget

    def run_in(pid: int, place: str) -> None:
        assert pid == child.pid and child.stdin is not None
        child.stdin.write(place + "\n")
        child.stdin.flush()

    monkeypatch.setattr(sys, "remote_exec", run_in, raising=False)
    monkeypatch.setattr(AttachTarget, "check", lambda self: None)
    monkeypatch.setattr(AttachTarget, "find_debugger", lambda self: "python")
    out = tmp_path / "out.jsonl"
    out.touch()
    child = subprocess.Popen(
        [python, "-c", LOOP], env={"PYTHONPATH": str(HERE / "fake_torch")}, cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "here\n"
    attached = AttachedProcess(child.pid, out)
    try:
        assert child.stdout.readline() == "watched 0\n"
        attached.stop()
        assert attached.reports.read_reports()[child.pid].counts == (4, 5, 1)
    finally:
        attached.stop()
    assert child.communicate(timeout=60) == ("[]\n[]\n", "")
    (run,) = load(out, cache=False)
    assert run.events.filter(kind="step").select("phase", "tokens", "batch", "context").rows() == [
        ("prefill", 2, 2, 5), *(("decode", 2, 2, 5 + n) for n in (1, 2, 3)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["2.7.18", "3.6.15", "3.7.16"])
def test_a_python_that_is_too_old_runs_as_if_alone(name: str, tmp_path: Path) -> None:
    python = Path.home() / ".pyenv" / "versions" / name / "bin" / "python"
    if not python.exists():
        pytest.skip("not on this machine")
    (tmp_path / "sitecustomize.py").write_text("print('the hidden one')\n")
    env = {
        "PYTHONPATH": f"{SITE}:{tmp_path}",
        "TRACETUI_OUT": str(tmp_path / "out"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    result = subprocess.run(
        [str(python), "-c", "print('ran')"], env=env, capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr, result.returncode) == ("the hidden one\nran\n", "", 0)
