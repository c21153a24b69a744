"""Three kinds of engine: the bundled one, a user's program, and a process that watches a server or folder."""

import os
import re
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError
from tracetui import package_paths
from tracetui.process.command_lines import build_own_command, build_recorded_environment
from tracetui.process.engine_process import EngineProcess
from tracetui.process.process_reports import ReportFolder, list_process_tree, list_run_processes

COMMAND_LINE_TIMEOUT_S: Final = 30.0  # the command line of the engine answers within it
ERROR_PREFIX: Final = re.compile(r"^(python -m )?engines: (error: )?")  # of a line that refuses arguments
RESERVED_OPTIONS: Final = ("-h", "--help", "--out", "--check", "--tell", "--interactive", "--die-with-parent")
QUIT_GRACE_S: Final = 0.15  # quitting the screen waits this long for a user's program
_THREAD_LIMIT: Final = {"POLARS_MAX_THREADS": "2"}  # leave the cores to the server that is watched


class BundledEngine(EngineProcess):
    """The bundled engine, which can be restarted with other arguments."""

    def __init__(self, arguments: Sequence[str], out: Path, *, interactive: bool = False) -> None:
        """Start it, recording into `out`; an interactive one waits for more prompts."""
        self._out, self._interactive = out, interactive
        self.arguments = tuple(arguments)
        super().__init__(self._build_command(), package_paths.build_environment())

    def set_arguments(self, arguments: Sequence[str]) -> None:
        """Set the arguments of the next start."""
        self.arguments = tuple(arguments)
        self.command = self._build_command()

    def explain_failure(self) -> str:
        """Return why it died; if it refused its arguments, in its own words."""
        if self.refused_arguments:
            return _extract_reason(self.list_last_lines(1))
        return super().explain_failure()

    def build_error(self, todo: str = "") -> CaptureError:
        """Return the error for its death: UsageError if it refused its arguments."""
        if self.refused_arguments:
            return UsageError(self.explain_failure(), todo=todo)
        return super().build_error(todo)

    @property
    def refused_arguments(self) -> bool:
        """Whether it ended because it refused its arguments."""
        return self.returncode == UsageError.exit_code

    def _build_command(self) -> list[str]:
        fixed = ["--out", str(self._out), "--die-with-parent", *(["--interactive"] * self._interactive)]
        return build_own_command("engines", *self.arguments, *fixed)


def explain_refusal(arguments: Sequence[str]) -> str:
    """Return why the bundled engine refuses these arguments, in its own words; empty if it accepts them."""
    for option in RESERVED_OPTIONS:
        if option in arguments:
            return f"{option} cannot be set here"
    code, output = _run_command_line(*arguments, "--out", os.devnull, "--check")
    return _extract_reason(output.strip().splitlines() or [f"exit code {code}"]) if code else ""


def list_options() -> list[str]:
    """Return the options of the bundled engine that the user may set, each with its values."""
    usage = _run_command_line("--help")[1].partition("\n\n")[0]
    options = (" ".join(option.split()) for option in re.findall(r"\[(--[^\]]+)\]", usage))
    return [clean(option, 200) for option in options if option.split()[0] not in RESERVED_OPTIONS]


def _extract_reason(lines: Sequence[str]) -> str:
    """Return the last line without the prefix of the engine."""
    return clean(re.sub(ERROR_PREFIX, "", lines[-1]), 1000) if lines else "the engine refused its arguments"


def _run_command_line(*arguments: str) -> tuple[int, str]:
    """Return exit code and output of the engine's command line, which answers before its heavy imports."""
    try:
        result = subprocess.run(
            build_own_command("engines", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_LINE_TIMEOUT_S,
            check=False,
            env=package_paths.build_environment(),
        )
    except (OSError, subprocess.SubprocessError) as e:
        return 1, f"engines: {e}"
    return result.returncode, result.stdout


class UserProgram(EngineProcess):
    """A user's program, recorded without an edit. The screen has the keyboard, so its input is empty."""

    start_message = "starting the program"
    label = "the program"
    background_grace_s = QUIT_GRACE_S

    def __init__(self, command: Sequence[str], out: Path, log: Path | None = None) -> None:
        """Start it, recording into `out` and copying its output to `log`. Raise EngineError if that fails."""
        self._out = out
        self._reports: ReportFolder | None = None
        super().__init__(command, with_watchdog=True, accepts_orders=False, log=log)

    def start(self) -> None:
        """Start it, with a new folder for reports each time."""
        self._remove_reports()
        self._run_id = secrets.token_hex(8)
        self._reports = ReportFolder(self._run_id)
        self._environment = {**build_recorded_environment(self._out), **self._reports.environment}
        try:
            super().start()
        except BaseException:
            self._remove_reports()
            raise

    def stop(self, *, in_background: bool = False) -> None:
        """Kill it with all that it started. If it was killed before, add the steps that it did not write."""
        had_ended = not self.is_running
        super().stop(in_background=in_background)
        if had_ended and self._reports is not None and self._out.exists():
            self._reports.add_last_steps(self._out)
        self._remove_reports()

    def explain_empty_recording(self) -> str:
        """Return why it recorded nothing."""
        why = f", because {self._reports.explain_empty_recording()}" if self._reports else ""
        return f"nothing was recorded{why}; its standard input was empty"

    def _list_escaped_processes(self) -> list[int]:
        """Return the processes that it started but that left its group, as a new session does."""
        started = {*list_process_tree(self.pid), *list_run_processes(self._run_id)} - {self.pid, os.getpid()}
        return [pid for pid in sorted(started) if _find_group(pid) not in (self.pid, None)]

    def _remove_reports(self) -> None:
        if self._reports is not None:
            self._reports.remove()
            self._reports = None


def _find_group(pid: int) -> int | None:
    """Return the group of a process, or None if it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None


class WatchProcess(EngineProcess):
    """A process of ours that records a server or a folder, so that slow reads never block the screen."""

    start_message = "starting to watch"
    label = "the watching process of tracetui"
    stop_timeout_s = 20.0  # it first stops the profile that a server is writing

    def __init__(self, arguments: Sequence[str], out: Path) -> None:
        """Start it, recording into `out`. Raise EngineError if that fails."""
        command = build_own_command("capture.watch", *arguments, "--out", str(out))
        super().__init__(command, {**package_paths.build_environment(), **_THREAD_LIMIT})

    def start_sampler(self, out: Path) -> None:
        """Sample nothing: the counters would be those of this process, not of the server."""
