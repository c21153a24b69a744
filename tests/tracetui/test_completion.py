"""Completion of shells: every command, its options, the views; and bash itself completes with the script."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import parser_of
from tests.tracetui.in_process import tracetui
from tracetui.verbs import VERBS
from tracetui.verbs.completion import SHELLS
from tracetui.views import load_views


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_option_and_view_is_in_the_script(shell: str) -> None:
    script = tracetui("completion", shell).stdout
    every = {option for verb in VERBS for option in parser_of(verb)._option_string_actions}
    options = {option.removeprefix("--") for option in every if option.startswith("--")}
    assert {
        word for word in (*VERBS, *options, *(v.name for v in load_views())) if word not in script
    } == set()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["tracetui", "bas"], {"baseline"}),
        (["tracetui", "report", "tim"], {"timeline"}),
        (["tracetui", "report", "kernels", "--form"], {"--format"}),
        (["tracetui", "report", "kernels", "f.jsonl", "--format", "c"], {"csv"}),
        (["tracetui", "diff", "prof"], {"prof.jsonl"}),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], completed: set[str]) -> None:
    (tmp_path / "prof.jsonl").touch()
    (tmp_path / "script").write_text(tracetui("completion", "bash").stdout)
    asked = (
        "source ./script; function=$(complete -p tracetui | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; $function tracetui; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {word.strip() for word in result.stdout.split()} == completed, result
