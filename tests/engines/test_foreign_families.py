"""Model families of other packages: a hand-made package is found by the engine, a broken one is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capture.load_runs import load
from tests.house import ROOT

FAMILY = """
from dataclasses import replace
from engines.models.config_fields import Family
from engines.models.llama import FAMILY as LLAMA

small = replace(LLAMA.presets[0], name="acme-tiny", family="acme", layers=2, hidden=64, ffn=96,
                heads=4, kv_heads=2, head_dim=16)
FAMILY = Family("acme", LLAMA.read, (small,))
"""
BROKEN = {
    "import": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "object": ("FAMILY = 3", "it is not a Family"),
    "double": (FAMILY.replace('Family("acme"', 'Family("llama"'), "there is a family for llama already"),
}


def install(folder: Path, code: str) -> None:
    """Write a package `acme-models 1.2` as pip would install it."""
    (folder / "acme_models.py").write_text(code)
    info = folder / "acme_models-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-models\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[tracetui.models]\nacme = acme_models:FAMILY\n")


def run_engine(folder: Path, model: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "engines", "--model", model, "--steps", "2", "--out", "run.jsonl"]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_family_of_another_package_decodes(tmp_path: Path) -> None:
    install(tmp_path, FAMILY)
    result = run_engine(tmp_path, "acme-tiny")
    assert result.returncode == 0, result.stderr
    (run,) = load(tmp_path / "run.jsonl")
    assert run.meta["model"] == "acme-tiny"
    assert set(run.events["layer"].drop_nulls()) == {0, 1}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_family_is_named_and_left_out(case: str, tmp_path: Path) -> None:
    code, problem = BROKEN[case]
    install(tmp_path, code)
    result = run_engine(tmp_path, "acme-tiny")
    assert result.returncode == 2
    assert "family acme of acme-models 1.2 (acme_models:FAMILY) is left out" in result.stderr
    assert problem in result.stderr
    assert "llama" in result.stderr, "our own families are there"
