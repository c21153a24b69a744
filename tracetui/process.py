"""An engine as the explorer knows it: a command line that appends event lines to a file."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from capture.errors import CaptureError, EngineError, UsageError
from capture.text import clean
from tracetui import rooms

STDERR_KEPT: Final = 64 << 10
PATIENCE: Final = 3.0  # seconds between asking an engine to end and ending it
DOOR_S: Final = 30.0  # seconds that the engine's door may take to answer
OUT: Final = "TRACETUI_OUT"
OWN: Final = re.compile(r"^(engines|tracetui): ")  # begins a line that a recorder of ours prints
DOOR: Final = re.compile(r"^(python -m )?engines: (error: )?")  # begins a word of the bundled engine
GAPS: Final = re.compile(OWN.pattern + "the recording has gaps")
NOT_ASKED: Final = ("-h", "--help", "--out", "--check", "--tell", "--interactive", "--die-with-parent")
OURS: Final = (sys.executable, "-P", "-m")  # -P: a folder here that has our name is not ours


def surroundings(out: Path) -> dict[str, str]:
    """The environment of a foreign program: where the lines go, and what makes plain PyTorch write them."""
    hook = str(rooms.folder() / "capture" / "record" / "site")
    paths = [hook, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, OUT: str(out.absolute()), "PYTHONPATH": os.pathsep.join(paths)}


def leash(group: int) -> list[str]:
    """The command line of the process that ends a group of others when this one is killed."""
    return [*OURS, "capture.record.watchdog", str(group)]


def sampler(out: Path, pid: int) -> list[str]:
    """The command line of the process that adds CPU, memory and GPU counters to a recording."""
    return [*OURS, "capture.record.counters", str(out), "--pid", str(pid)]


class Engine:
    """A running engine: its command channel, the end of its stderr, and the sentence when it dies."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, leashed: bool = False
    ) -> None:
        """A leashed one ends with this process; others see to that themselves."""
        self.command = list(command)
        self._environment = dict(environment) if environment is not None else None
        self._leashed = leashed
        self._leash: subprocess.Popen[bytes] | None = None
        self._sampler: Engine | None = None
        self._sampled: Path | None = None
        self.start()

    def start(self) -> None:
        """Once more after its end: what it appends to its file is a run of its own."""
        try:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as e:
            raise EngineError(
                f"{clean(self.command[0])} cannot be started", why=os.strerror(e.errno or 0)
            ) from None
        if self._leashed:
            self._leash = subprocess.Popen(
                leash(self._child.pid), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, env=rooms.environment(),
            )  # fmt: skip
        if self._sampled is not None:
            self.sample_into(self._sampled)
        self._said: deque[bytes] = deque()
        self._kept = 0
        self._asked_to_end = False
        reader = threading.Thread(
            target=self._listen, args=(self._child.stdout,), daemon=True, name="engine output"
        )
        reader.start()
        self._reader = reader

    def sample_later(self, out: Path) -> None:
        """Such a process is to come when `sample` says so: its start would be in the way of something."""
        self._sampled = out

    def sample(self) -> None:
        """Begins what was put off."""
        if self._sampled is not None and self._sampler is None:
            self.sample_into(self._sampled)

    def sample_into(self, out: Path) -> None:
        """From now on a process beside it adds CPU, memory and GPU counters to a recording."""
        self._sampled = out
        self._sampler = Engine(sampler(out, self.pid), rooms.environment())

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self.returncode is None

    @property
    def returncode(self) -> int | None:
        if self._leash is not None:
            self._leash.poll()  # what is beside an engine ends soon after it, and nobody else buries it
        if self._sampler is not None:
            self._sampler._child.poll()
        return self._child.poll()

    def send(self, order: Mapping[str, Any]) -> bool:
        """One JSON line to the engine; false where it no longer listens."""
        if self._child.stdin is None or not self.running:
            return False
        try:
            self._child.stdin.write(json.dumps(order).encode() + b"\n")
            self._child.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def stop(self) -> None:
        """Asks the engine to end, then tells it, then ends its whole group; no orphan stays."""
        self._asked_to_end = self._asked_to_end or self.running
        self.send({"do": "quit"})
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._signal(number)
            if self._wait(PATIENCE):
                break
        self._signal(signal.SIGKILL)
        self._reader.join(1.0)
        if self._leash is not None:
            self._leash.kill()
            self._leash.communicate()
        if self._sampler is not None:
            self._sampler.stop()

    def last_words(self, lines: int = 20) -> list[str]:
        """The end of what the engine printed, cleaned."""
        text = b"".join(tuple(self._said)).decode("utf-8", "replace")
        return [clean(line, 2000) for line in text.splitlines() if line.strip()][-lines:]

    def obituary(self) -> str:
        """Why the engine is no more, in a sentence; empty while it runs or when it ended as it should."""
        code = self.returncode
        if code is None or code == 0 or self._asked_to_end:
            return ""
        if code < 0:
            return f"the engine was ended by {_signal_name(-code)}{_suspicion(-code)}"
        words = [OWN.sub("", line) for line in self.last_words(1)]
        return f"the engine ended with exit code {code}" + (f": {words[0]}" if words else "")

    def failure(self, todo: str = "") -> CaptureError:
        """What to raise of an engine that has an obituary."""
        return EngineError(self.obituary(), todo=todo)

    @property
    def complaint(self) -> str:
        """What a recorder of ours says of gaps in its recording; empty where it has none."""
        own = (line for line in reversed(self.last_words()) if GAPS.match(line))
        return OWN.sub("", next(own, ""))

    def _wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.running

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def _listen(self, stream: IO[bytes] | None) -> None:
        """Keeps the last 64 KiB of what the engine prints, whatever it prints."""
        while stream is not None and (chunk := os.read(stream.fileno(), 4096)):
            self._said.append(chunk)
            self._kept += len(chunk)
            while self._kept > STDERR_KEPT:
                self._kept -= len(self._said.popleft())


class Bundled(Engine):
    """The engine that comes with the explorer: it can be started again with other arguments."""

    def __init__(self, arguments: Sequence[str], out: Path, *, interactive: bool = False) -> None:
        """An interactive one waits for further prompts."""
        self._out, self._interactive = out, interactive
        self.arguments = tuple(arguments)
        super().__init__(self._command(), rooms.environment())

    def take(self, arguments: Sequence[str]) -> None:
        """Other arguments, from the next start on."""
        self.arguments = tuple(arguments)
        self.command = self._command()

    def obituary(self) -> str:
        """What it was asked and would not do is told in its own words."""
        return _reason(self.last_words(1)) if self.refused else super().obituary()

    def failure(self, todo: str = "") -> CaptureError:
        return UsageError(self.obituary(), todo=todo) if self.refused else super().failure(todo)

    @property
    def refused(self) -> bool:
        """Whether it ended because it was asked for something that does not exist."""
        return self.returncode == UsageError.exit_code

    def _command(self) -> list[str]:
        own = ["--out", str(self._out), "--die-with-parent", *(["--interactive"] * self._interactive)]
        return [*OURS, "engines", *self.arguments, *own]


def refusal(arguments: Sequence[str]) -> str:
    """Why the bundled engine would not take these arguments, in its own words; empty where it would."""
    for option in NOT_ASKED:
        if option in arguments:
            return f"{option} is not for a person to choose here"
    code, words = _asked(*arguments, "--out", os.devnull, "--check")
    return _reason(words.strip().splitlines() or [f"exit code {code}"]) if code else ""


def _reason(words: Sequence[str]) -> str:
    """The engine's last line, without what comes before its sentence."""
    return clean(re.sub(DOOR, "", words[-1]), 1000) if words else "the engine refused what it was asked"


def offered() -> list[str]:
    """What the bundled engine may be asked, each option with its values, in its own words."""
    usage = _asked("--help")[1].partition("\n\n")[0]
    known = (" ".join(option.split()) for option in re.findall(r"\[(--[^\]]+)\]", usage))
    return [clean(option, 200) for option in known if option.split()[0] not in NOT_ASKED]


def _asked(*arguments: str) -> tuple[int, str]:
    """What the engine's door says, before anything heavy is imported."""
    try:
        done = subprocess.run(
            [*OURS, "engines", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=DOOR_S, check=False,
            env=rooms.environment(),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as e:
        return 1, f"engines: {e}"
    return done.returncode, done.stdout


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _suspicion(number: int) -> str:
    reasons = {signal.SIGKILL: ", probably for want of memory", signal.SIGSEGV: ", a fault in native code"}
    return next((words for known, words in reasons.items() if known == number), "")
