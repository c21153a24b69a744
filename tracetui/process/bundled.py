"""The engine that comes with the explorer: how it is started, and what it says of its options."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture.errors import CaptureError, UsageError
from capture.text import clean
from tracetui import rooms
from tracetui.process.commands import own_command
from tracetui.process.engine import Engine

ANSWER_S: Final = 30.0  # seconds that the engine's command line may take to answer
PREFIX: Final = re.compile(r"^(python -m )?engines: (error: )?")  # of a line that it prints on refusing
NOT_ASKED: Final = ("-h", "--help", "--out", "--check", "--tell", "--interactive", "--die-with-parent")


class Bundled(Engine):
    """The bundled engine: it can be started again with other arguments."""

    def __init__(self, arguments: Sequence[str], out: Path, *, interactive: bool = False) -> None:
        """Start it, recording into `out`; an interactive one waits for further prompts."""
        self._out, self._interactive = out, interactive
        self.arguments = tuple(arguments)
        super().__init__(self._command(), rooms.environment())

    def set_arguments(self, arguments: Sequence[str]) -> None:
        """Set other arguments, from the next start on."""
        self.arguments = tuple(arguments)
        self.command = self._command()

    def failure_reason(self) -> str:
        """Return why it died, in its own words where it refused its arguments."""
        return _reason(self.last_lines(1)) if self.refused else super().failure_reason()

    def failure(self, todo: str = "") -> CaptureError:
        """Return the error to raise of it: of usage where it refused its arguments."""
        return UsageError(self.failure_reason(), todo=todo) if self.refused else super().failure(todo)

    @property
    def refused(self) -> bool:
        """Whether it ended because it was asked for something that does not exist."""
        return self.returncode == UsageError.exit_code

    def _command(self) -> list[str]:
        own = ["--out", str(self._out), "--die-with-parent", *(["--interactive"] * self._interactive)]
        return own_command("engines", *self.arguments, *own)


def refusal_reason(arguments: Sequence[str]) -> str:
    """Return why the bundled engine refuses these arguments, in its own words; empty where it takes them."""
    for option in NOT_ASKED:
        if option in arguments:
            return f"{option} is not for a person to choose here"
    code, output = _ask(*arguments, "--out", os.devnull, "--check")
    return _reason(output.strip().splitlines() or [f"exit code {code}"]) if code else ""


def list_options() -> list[str]:
    """Return the options of the bundled engine that a person may choose, each with its values."""
    usage = _ask("--help")[1].partition("\n\n")[0]
    options = (" ".join(option.split()) for option in re.findall(r"\[(--[^\]]+)\]", usage))
    return [clean(option, 200) for option in options if option.split()[0] not in NOT_ASKED]


def _reason(lines: Sequence[str]) -> str:
    """Return the engine's last line without its prefix."""
    return clean(re.sub(PREFIX, "", lines[-1]), 1000) if lines else "the engine refused what it was asked"


def _ask(*arguments: str) -> tuple[int, str]:
    """Return the exit code and output of the engine's command line, which answers before heavy imports."""
    try:
        done = subprocess.run(
            own_command("engines", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
            env=rooms.environment(),
        )
    except (OSError, subprocess.SubprocessError) as e:
        return 1, f"engines: {e}"
    return done.returncode, done.stdout
