"""The documents are true: generated parts are fresh, commands run, options, links, views and keys exist."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from capture import errors
from capture.load_runs import load
from capture.native.schema import LENSES
from tests import commands
from tests.commands import Command, homes, words_of
from tests.docs import GUIDES, MAN_PAGE, PARTS, ROOT, rewritten
from tests.house import ROOMS
from tracetui import cli
from tracetui.guides import TOPICS, read_glossary, read_guide
from tracetui.verbs import EXAMPLES, VERBS
from tracetui.views import load_views

DOCUMENTS = (*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")),
             *sorted(GUIDES.glob("*.md")))  # fmt: skip
SHELL = re.compile(r"[|<>;&]|\n")  # what only a shell understands
TORCH = importlib.util.find_spec("torch") is not None
OTHERS = {
    *("--nproc-per-node", "--out"),  # of torchrun, and of the engine behind it
    *("--profiler-config", "--enable-metrics", "--log-requests", "--log-requests-format"),  # of servers
    *("--otlp-traces-endpoint", "--metrics"),
    "--with",  # of uv
    "--stacks",  # of a benchmark
    *("--seconds", "--case", "--tally", "--jobs", "--input", "--kills"),  # of the fuzzer and the killer
}

EVERY = commands.commands()
name_of = {"ids": lambda x: x.name if isinstance(x, Path) else re.sub(r"\s+", " ", x.text)[:60]}


@pytest.mark.parametrize("document", PARTS, **name_of)
def test_generated_parts_are_fresh(document: Path) -> None:
    assert rewritten(document) == document.read_text(), "run: python -m tests.docs"


def test_every_option_has_a_sentence() -> None:
    untold = [
        (verb, action.option_strings or action.dest)
        for verb in VERBS
        for action in commands.parser_of(verb)._actions
        if not action.help
    ]
    assert untold == []


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_the_man_page_is_clean_roff() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-rLL=100n", str(MAN_PAGE)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout)
    assert result.stderr == ""
    for verb in VERBS:
        assert f"tracetui {verb}" in shown
    plain = shown.replace("\u2010", "-").replace("\u2212", "-")
    assert {option for option in commands.known_options() if option not in plain} <= {"-h", "--help"}


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in EVERY if c.exception is None], **name_of)
def test_a_command_runs(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.needs is not None and importlib.util.find_spec(command.needs) is None:
        pytest.skip(f"needs {command.needs}")
    commands.prepare(command, tmp_path)
    if command.needs is not None or SHELL.search(command.text) or not command.text.startswith("tracetui "):
        result = commands.run(command, tmp_path)
        assert result.returncode in command.codes, result.stderr
        return
    monkeypatch.chdir(tmp_path)
    for name, value in homes(tmp_path).items():
        monkeypatch.setenv(name, value)
    code = cli.main(words_of(command.text)[1:])
    assert code in command.codes, capsys.readouterr().err


@pytest.mark.parametrize("command", [c for c in EVERY if c.exception is not None], **name_of)
def test_a_command_that_is_not_run_is_right(command: Command) -> None:
    assert command.exception is not None
    how, words = command.exception[0], words_of(command.text)
    if how == "parser":
        commands.parser_of(words[1]).parse_args(words[2:])
    elif how == "target":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif how == "extras":
        extras = re.findall(r"\[(\w+)\]", command.text)
        assert set(extras) <= set(
            tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        )
    elif TORCH:
        asked = [sys.executable, *words[words.index("-m") :], "--check"]
        subprocess.run(asked, cwd=ROOT, check=True, timeout=60)


def test_every_command_has_an_example_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(EXAMPLES) == set(VERBS)
    with pytest.raises(SystemExit):
        cli.main(["diff", "--help"])
    text = capsys.readouterr().out
    assert all(f"\n  {example}\n" in text for example in EXAMPLES["diff"])


@pytest.mark.parametrize("document", DOCUMENTS, **name_of)
def test_options_and_commands_exist(document: Path) -> None:
    text = document.read_text()
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert options <= commands.known_options() | OTHERS | {"--format"}, options - commands.known_options()
    used = set(re.findall(r"`tracetui ([a-z]+)", text))
    assert used <= set(VERBS), used - set(VERBS)
    for topic in re.findall(r"tracetui help ([a-z-]+)", text):
        assert topic in TOPICS, topic


@pytest.mark.parametrize("document", DOCUMENTS, **name_of)
def test_links_lead_to_files(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not link.startswith("https://"):
            assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], **name_of)
def test_named_files_exist(document: Path) -> None:
    """A path in code quotes is the end of some file's path, or a folder of a room."""
    text = document.read_text()
    there = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for room in (*ROOMS, "tests")
        for path in (ROOT / room).rglob("*")
    ]
    there += [f"/{path.name}" for path in ROOT.iterdir()]
    for path in re.findall(r"`([\w./-]+(?:\.py|\.md|\.toml|/))`", text):
        assert any(place.endswith("/" + path.rstrip("/")) for place in there), path


def test_every_view_is_documented() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", read_guide("views"), re.MULTILINE))
    assert rows == {view.name for view in load_views()}


def test_every_exit_code_is_documented() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", read_guide("exit-codes"), re.MULTILINE)}
    kinds = [getattr(errors, name) for name in vars(errors) if name.endswith("Error")]
    raised = {kind.exit_code for kind in kinds}
    assert raised | {0, 1, cli.INTERNAL_ERROR, 129, 130, 141, 143} == codes


def test_the_glossary_covers_the_words_of_the_screen() -> None:
    terms = {part for term, _ in read_glossary() for part in term.split(", ")}
    laws = {"flat", "linear", "noisy"}
    verdicts = {"~", "same", "new", "gone"}
    badges = {"dropped", "cut short", "profiled", "guess", "held"}
    words = {
        "lens",
        "gap",
        "roof",
        "floor",
        "folded",
        "scale",
        "bound",
        "baseline",
        "window",
        "share",
        "launch",
    }
    assert words | set(LENSES) | laws | verdicts | badges <= terms


def test_the_recorder_of_the_guide_records(tmp_path: Path) -> None:
    script = re.search(r"```python\n(.*?)```", read_guide("recording"), re.DOTALL)
    assert script
    subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script[1]}"],
                   cwd=tmp_path, check=True, timeout=60)  # fmt: skip
    (run,) = load(tmp_path / "prof.jsonl", cache=False)
    assert run.events.filter(run.events["kind"] == "step").height == 64


def test_the_engine_in_a_shell_writes_what_it_says(tmp_path: Path) -> None:
    (script,) = (c for c in EVERY if "sha512sum" in c.text)
    commands.run(script, tmp_path).check_returncode()
    (run,) = load(tmp_path / "prof.jsonl", cache=False)
    assert run.log.dropped == 0 and run.log.retained > 0
    rows = run.events.filter(run.events["kind"] == "kernel")
    assert sorted(rows["step"].to_list()) == sorted([*range(1, 9)] * 3)
    assert set(rows["name"]) == {"md5sum", "sha256sum", "sha512sum"}
    assert run.events.filter(run.events["kind"] == "step").height == 8


def test_the_smallest_native_file_is_read(tmp_path: Path) -> None:
    lines = re.search(r"```json\n(.*?)```", read_guide("native-format"), re.DOTALL)
    assert lines
    (tmp_path / "prof.jsonl").write_text(lines[1])
    (run,) = load(tmp_path / "prof.jsonl", cache=False)
    assert run.log.dropped == run.log.repaired == 0 and run.events.height == 2
