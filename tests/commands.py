"""The commands that documents show: where they stand, what they read, and which are not run and why."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture.native.emit import Emitter
from tests.docs import GUIDES, ROOT
from tracetui.samples import find_sample
from tracetui.verbs import EXAMPLES, VERBS, load_verb

DOCUMENTS: Final = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(GUIDES.glob("*.md")))
BLOCK: Final = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
FIRST_WORDS: Final = ("tracetui", "pip", "make", "torchrun", "cat", "head")

# What a test does not run as it stands, and why; each is checked in the way that its second entry names.
EXCEPTIONS: Final = (
    (r"^pip ", "extras", "installs into the environment of the tests"),
    (r"^make ", "target", "sets up an environment of its own"),
    (r"^tracetui live ", "parser", "needs a terminal; without one it records a whole run"),
    (r"^tracetui replay ", "parser", "needs a terminal"),
    (r"^tracetui doctor --measure", "parser", "keeps both cores busy for seconds, beside other tests"),
    (r"^tracetui record (http|--watch)", "parser", "waits for a server, or for traces; their tests run it"),
    (r"^tracetui load http", "parser", "needs a server; its own tests start one"),
    (r"^tracetui report requests served", "parser", "needs the recording of a server and its clients' log"),
    (r"^tracetui record .*--ranks", "parser", "fills weights twice; the tests of the ranks do so already"),
    (r"^tracetui diff --record", "parser", "records until its budget is spent; its own tests do so already"),
    (r"^tracetui bisect ", "parser", "needs a repository, or packages; its own tests make some"),
    (r"^tracetui record --pid ", "parser", "needs a process of this number; tests attach to their own"),
    (r"^torchrun ", "engine", "decodes until it is stopped"),
)
NEEDS: Final = {r"^tracetui record ": "torch", r"^tracetui mcp ": "mcp"}  # what is not everywhere

PROGRAM: Final = """\
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
for _ in range(4):
    model(torch.zeros(1, 8))
"""


class Command(NamedTuple):
    """One command, or a block of shell that is one program."""

    where: str
    text: str

    @property
    def needs(self) -> str | None:
        """Return the module without which the command cannot run; None where it needs none."""
        return next((module for pattern, module in NEEDS.items() if re.search(pattern, self.text)), None)

    @property
    def exception(self) -> tuple[str, str] | None:
        """Return how the command is checked instead of being run, and the reason; None where it is run."""
        found = ((how, why) for pattern, how, why in EXCEPTIONS if re.search(pattern, self.text))
        return next(found, None)

    @property
    def codes(self) -> tuple[int, ...]:
        """Return the exit codes that are right: a gate may find a regression in its stand-ins."""
        return (0, 1) if "--fail-over" in self.text else (0,)


def commands() -> list[Command]:
    """Return every command of the documents and of `--help`, each once."""
    every = [*_of_documents(), *(Command(f"{v} --help", e) for v in EXAMPLES for e in EXAMPLES[v])]
    return list({command.text: command for command in reversed(every)}.values())[::-1]


def _of_documents() -> Iterator[Command]:
    for document in DOCUMENTS:
        for block in BLOCK.findall(document.read_text()):
            lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
            if all(line.split()[0] in FIRST_WORDS for line in lines):
                yield from (Command(document.name, re.sub(r"\s+# .*", "", line)) for line in lines)
            else:
                yield Command(document.name, block)


def parser_of(name: str) -> ArgumentParser:
    """Return the parser of a command, with the options of its module."""
    parser = ArgumentParser(name, exit_on_error=False)
    load_verb(name).options(parser)
    return parser


def known_options() -> set[str]:
    """Return every option that some command takes."""
    return {option for name in VERBS for option in parser_of(name)._option_string_actions}


def prepare(command: Command, folder: Path) -> None:
    """Write a stand-in for every file that the command reads."""
    words = re.split(r"[\s;|]+", command.text)
    for before, word in zip(["", *words], words, strict=False):
        if word.endswith(".jsonl") and before not in ("-o", "--out", ">", ">>"):
            _recording(folder / word)
        if word.endswith(".py"):
            (folder / word).write_text(PROGRAM)
    if "run-folder" in words:
        _rank_files(folder / "run-folder")
    if "baseline:main" in words or "--remove" in words:
        run(Command("", "tracetui baseline main sample:decode"), folder)
    if "fixtures/pictures" in command.text:
        shutil.copytree(ROOT / "tests/fixtures/pictures", folder / "tests/fixtures/pictures")


def _recording(path: Path) -> None:
    """Write a sample under the name; of repeats (a1, a2 …) each a little different from the others."""
    from capture.source import Source

    side = "slowed" if path.stem.startswith(("after", "b1", "b2", "b3", "q4")) else "decode"
    number = int(path.stem[-1]) if path.stem[-1:].isdigit() else 0
    with path.open("w") as out:
        for _, line in Source.from_path(find_sample(side)).iter_lines():
            out.write(json.dumps(_varied(json.loads(line), number)) + "\n" if line.strip() else "")


def _varied(record: dict[str, Any], number: int) -> dict[str, Any]:
    record.pop("crc", None)
    if record["kind"] == "run":
        record["id"] += str(number)
    if record["kind"] == "columns":
        record["dur"] = [dur * (1000 + number) // 1000 for dur in record["dur"]]
    return record


def _rank_files(folder: Path) -> None:
    folder.mkdir()
    for rank in (0, 1):
        emitter = Emitter(folder / f"rank{rank}.jsonl", rank=rank)
        emitter.run("job", id="job")
        for step in range(8):
            start = 1000 * step
            emitter.event("kernel", "gemm", t=start, dur=400 + rank, step=step, category="matmul")
            emitter.event("kernel", "all_reduce", t=start + 500, dur=100, step=step, category="comm")
            emitter.step(step, start, 900, tokens=1)
        emitter.end()


def run(command: Command, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder by a shell that finds `tracetui` and `python` of these tests."""
    shims = folder / ".bin"
    shims.mkdir(exist_ok=True)
    for name, arguments in (("tracetui", "-m tracetui "), ("python", "")):
        (shims / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (shims / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)} | homes(folder)
    return subprocess.run(
        ["sh", "-e", "-c", command.text], cwd=folder, env=env, capture_output=True, text=True, timeout=100
    )


def homes(folder: Path) -> dict[str, str]:
    """Return the environment that keeps what the tool keeps inside a folder."""
    return {
        name: str(folder / ".home")
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    }


def words_of(text: str) -> list[str]:
    return shlex.split(text, comments=True)
