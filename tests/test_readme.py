"""The README is true: its tree, its formats, its views, its commands and its links."""

import os
import re
import subprocess
from pathlib import Path

from capture.open import load
from tests.readme import README, ROOT, written
from tracetui.verbs import VERBS
from tracetui.views import VIEWS, views

TEXT = README.read_text()


def test_generated_parts_are_fresh() -> None:
    assert written(TEXT) == TEXT, "run: python -m tests.readme"


def test_every_view_is_told() -> None:
    told = set(re.findall(r"\w+", TEXT.split("## Views")[1].split("Keys:")[0]))
    assert {v.name for v in views()} <= told
    assert len(VIEWS) == len(views())


def test_commands_exist() -> None:
    used = set(re.findall(r"tracetui (\w+)", TEXT)) - {"itself"}
    assert used <= set(VERBS) | {"FILE"}, used - set(VERBS)


def test_linked_files_exist() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / link).exists(), link


def test_the_engine_in_a_shell_runs(tmp_path: Path) -> None:
    script = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    assert script
    out = tmp_path / "prof.jsonl"
    subprocess.run(["sh", "-c", script[1]], env={**os.environ, "TRACETUI_OUT": str(out)}, check=True)
    (run,) = load(out, cache=False)
    assert run.log.dropped == 0 and run.log.kept > 0
    rows = run.events.filter(run.events["kind"] == "kernel")
    assert sorted(rows["step"].to_list()) == sorted([*range(1, 9)] * 3)
    assert set(rows["name"]) == {"md5sum", "sha256sum", "sha512sum"}
    assert run.events.filter(run.events["kind"] == "step").height == 8
