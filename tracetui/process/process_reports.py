"""Reports of the processes of a recorded program, steps that killed ones left, a search for silent ones."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from capture.clean_text import clean
from capture.errors import CaptureError
from capture.native.emit import Emitter
from capture.native.parts import list_earlier_parts, read_first_line
from capture.record.process_notes import SavedStep, read_last_steps
from tracetui.process.command_lines import find_hook_folder

FOLDER_VARIABLE: Final = "TRACETUI_ACCOUNT"  # as in capture/record/process_notes.py; the recorder reads both
RUN_ID_VARIABLE: Final = "TRACETUI_RUN"
_MOST_NAMED: Final = 3  # silent processes that are listed by name
_TORCH_LIBRARY: Final = b"libtorch"
_STEP_START: Final = b'{"kind":"step"'
_RUN_START: Final = b'{"kind":"run"'


class ProcessReport(Struct):
    """What one process reported: its versions, what was recorded of it, and the faults of the recorder."""

    python: str = ""  # version
    torch: str = ""  # version; empty: not imported
    has_llama_cpp: bool = False
    is_recorded: bool = False
    counts: tuple[int, int, int] = (0, 0, 0)  # steps, forwards, threads
    has_ended: bool = False  # and said what it had seen
    faults: list[str] = field(default_factory=list)
    gaps: str = ""  # what could not be written
    missed: str = ""  # torch or llama_cpp, if it was imported past the recorder's hook
    is_recorder: bool = False  # whether it is a tracetui that records a program of its own
    _ended_counts: tuple[int, int, int] = (0, 0, 0)  # of recordings that have ended

    def add_line(self, line: str) -> None:
        """Add one line that the process wrote."""
        key, _, rest = line.partition(" ")
        if key in ("python", "torch", "gaps", "missed"):
            setattr(self, key, rest)
        elif key == "llama_cpp":
            self.has_llama_cpp = True
        elif key == "watched":
            self.is_recorded = True
        elif key == "records":
            self.is_recorder = True
        elif key == "fault":
            self.faults.append(rest)
        elif key == "continued":
            self.has_ended = False
        elif key in ("seen", "so-far"):
            self._add_counts([int(word) for word in rest.split() if word.isdecimal()], is_last=key == "seen")

    def _add_counts(self, numbers: Sequence[int], *, is_last: bool) -> None:
        """Add the counts of a recording; those so far replace the ones before."""
        if len(numbers) != 3:
            return
        steps, forwards, threads = map(sum, zip(self._ended_counts, numbers, strict=True))
        self.counts, self.has_ended = (steps, forwards, threads), True
        if is_last:
            self._ended_counts = self.counts


class ReportFolder:
    """A temporary folder into which the processes of one recorded program write their reports."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="tracetui-"))
        except OSError as e:
            raise CaptureError("no temporary folder can be created", why=e.strerror or str(e)) from None
        _tell_outer_recorder()
        self._silent_commands: dict[int, str] = {}  # of processes with torch that did not report it, by pid
        self._check_counts: dict[tuple[int, ...], int] = {}  # by pid and program

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that make a program and its children report here."""
        return {FOLDER_VARIABLE: str(self._folder), RUN_ID_VARIABLE: self._run_id}

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def read_reports(self) -> dict[int, ProcessReport]:
        """Return the report of each process so far, by pid."""
        reports = {}
        for path in sorted(self._folder.glob("process-*")):
            report = reports[int(path.name.removeprefix("process-"))] = ProcessReport()
            for line in path.read_text("utf-8", "replace").splitlines():
                report.add_line(clean(line, 1000))
        return reports

    def add_last_steps(self, out: Path) -> None:
        """Write into a recording the steps that killed processes made, but did not write."""
        paths = [path for path in sorted(self._folder.glob("last-*-*")) if not _is_running(path.name)]
        if not paths:
            return
        writers, starts, last_step = _list_written(out)
        for path in paths:
            head, steps = read_last_steps(path.read_bytes())
            with contextlib.suppress(msgspec.DecodeError):  # it was killed at once
                thread = msgspec.json.decode(head)
                latest = {step.start: step for step in steps}  # of those saved twice
                new = [step for start, step in latest.items() if start not in starts]
                _write_steps(out, thread, new, last_step, is_first=thread["writer"] not in writers)
                writers.append(thread["writer"])
                last_step += len(new)
            path.unlink()

    def check_for_silent(self, pid: int) -> None:
        """Note descendants of a process that have torch loaded but did not report that.

        Reading the maps of a process is slow, so that each is checked at its 1st, 2nd, 4th, 8th … call only;
        one that goes on as another program is another.
        """
        for child in list_process_tree(pid):
            key = child, hash((*_read_words(child, "cmdline"), *_read_words(child, "environ")))
            count = self._check_counts[key] = self._check_counts.get(key, 0) + 1
            if self._has_reported(child):
                self._silent_commands.pop(child, None)  # it was silent while it imported torch
                continue
            if count & (count - 1) or child in self._silent_commands:
                continue
            maps = _read_maps(child)
            if _TORCH_LIBRARY in maps and not self._has_reported(child, maps):
                self._silent_commands[child] = f"{_read_command(child)}){self._explain_silence(child)}"

    def list_silent(self) -> list[str]:
        """Return the processes with torch that never reported it, as `process PID (COMMAND)`, and why."""
        silent = (item for item in self._silent_commands.items() if not self._has_reported(item[0]))
        return [f"process {pid} ({command}" for pid, command in silent]

    def _has_reported(self, pid: int, maps: bytes = b"") -> bool:
        """Return whether a process reported torch, since it went on as another program if it did so.

        One that only started Python may never have asked us. One that failed to go on has a fault, one that
        is just about to still has our file in the maps of its memory.
        """
        try:
            notes = b"\n" + (self._folder / f"process-{pid}").read_bytes()
        except OSError:
            return False
        latest = notes.rpartition(b"\nexecutes")[2]
        return os.fsencode(self._folder) in maps or re.search(rb"\n(torch|fault) ", latest) is not None

    def _explain_silence(self, pid: int) -> str:
        """Return why a process runs without the recorder, as its environment and options show; else empty."""
        environment = _read_words(pid, "environ")
        folders = [word for word in environment if word.startswith(f"{FOLDER_VARIABLE}=")]
        if environment and not folders:
            return ", started without tracetui's environment variables"
        if folders and folders[0] != f"{FOLDER_VARIABLE}={self._folder}":
            return ", recorded by another tracetui"
        option = next(
            (w for w in _read_words(pid, "cmdline")[1:] if re.fullmatch("-[a-zA-Z]*[IES].*", w)), ""
        )
        if option:
            return f", started with {option}, which leaves the recorder out"
        return _explain_search_path(pid, environment) if environment else ""

    def describe_running(self) -> str:
        """Return the Python that the program left behind, as `process PID still runs`; empty without one."""
        running = (pid for pid in list_run_processes(self._run_id) if _is_python(pid))
        return next((f"process {pid} still runs" for pid in running), "")

    def explain_empty_recording(self) -> str:
        """Return why nothing was recorded, as the end of a sentence about the program."""
        if stop := self.explain_stop():
            return stop
        if refused := self._explain_refused():
            return refused
        reports = self.read_reports()
        if any(report.is_recorded for report in reports.values()):
            return "it was killed, or exited at once, before its first lines were written"
        if idle := _explain_idle_imports(reports):
            return idle
        if any(report.is_recorder for report in reports.values()):
            return "it runs another tracetui, which records instead"
        if silent := self.list_silent():
            return f"the recorder is not in {_join_named(silent)}"
        if reports:
            return "no process of it imported torch or llama_cpp"
        return (
            "none of its processes loaded the recorder: it runs no Python, or Python with -I, -E, -S or "
            "older than 3.8"
        )

    def _explain_refused(self) -> str:
        """Return the process that could write nothing, and why; empty if all could."""
        for path in sorted(self._folder.glob("refused-*-*")):
            _, pid, number = path.name.split("-")
            return f"the recorder in process {pid} could not write ({os.strerror(int(number)).lower()})"
        return ""

    def explain_stop(self) -> str:
        """Return why the recorder stopped by itself, in a sentence; empty if no process reported a fault."""
        faults = (fault for report in self.read_reports().values() for fault in report.faults)
        return next((f"the recorder stopped: {fault}" for fault in faults), "")

    def describe_coverage(self, steps: int) -> list[str]:
        """Return a line on what was recorded, given the number of steps, and a line for each shortcoming."""
        reports = self.read_reports()
        recorded = [report for report in reports.values() if report.is_recorded]
        lines = []
        if recorded:
            work = _format_count(steps, "step")
            processes = _format_count(len(recorded), "process", "processes")
            if all(report.has_ended for report in recorded):  # else the other counts are unknown
                _, forwards, threads = map(sum, zip(*(report.counts for report in recorded), strict=True))
                work += f", {_format_count(forwards, 'forward')}"
                processes += f", {_format_count(threads, 'thread')}"
            lines.append(f"recorded {work} in {processes}")
        return [*lines, *self._describe_shortcomings(reports)]

    def _describe_shortcomings(self, reports: Mapping[int, ProcessReport]) -> list[str]:
        """Return a line for each kind of process that was recorded in part, or not at all."""
        lines = []
        cut = [pid for pid, report in reports.items() if report.is_recorded and not report.has_ended]
        if cut:
            who = f"process {cut[0]}" if len(cut) == 1 else f"{len(cut)} processes"
            lines.append(
                f"{who} exited without a report: the rows of its last steps, and the numbers of forwards and "
                "threads, are missing"
            )
        for pid, report in reports.items():
            lines += [f"process {pid} was not recorded to its end: {fault}" for fault in report.faults]
        if running := self.describe_running():
            lines.append(f"{running}: its steps from now on are added to the recording")
        if silent := self.list_silent():
            lines.append(f"not recorded: {_join_named(silent)}")
        return lines

    def find_gaps(self) -> str:
        """Return the gaps that the recorder reported, or an empty text."""
        return next((report.gaps for report in self.read_reports().values() if report.gaps), "")


def _join_named(silent: Sequence[str]) -> str:
    """Return the first silent processes as a list, with the number of the others."""
    more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
    return ", ".join(silent[:_MOST_NAMED]) + more


def _explain_search_path(pid: int, environment: Sequence[str]) -> str:
    """Return why a Python did not find our `sitecustomize`, as its PYTHONPATH shows; else empty."""
    paths = (word.partition("=")[2] for word in environment if word.startswith("PYTHONPATH="))
    folders = next(paths, "").split(os.pathsep)
    if find_hook_folder() not in folders:
        return ", started with a PYTHONPATH of its own, without tracetui's folder"
    for folder in folders[: folders.index(find_hook_folder())]:
        if Path(f"/proc/{pid}/cwd", folder, "sitecustomize.py").exists():
            place = clean(folder, 200) or "its working folder"
            return f", which runs the sitecustomize of {place} instead of tracetui's"
    return ""


def _list_written(out: Path) -> tuple[list[dict[str, int]], set[int], int]:
    """Return the writers of the runs in a recording, the starts of its steps, and their highest number."""
    writers, starts, last_step = [], set(), 0
    for part in map(Path, (*list_earlier_parts(out, read_first_line(out)), str(out))):
        for line in part.read_bytes().splitlines() if part.exists() else ():
            if line.startswith((_STEP_START, _RUN_START)):
                with contextlib.suppress(msgspec.DecodeError):
                    fields = msgspec.json.decode(line)
                    starts.add(fields.get("t", 0))
                    last_step = max(last_step, fields.get("step", 0))
                    writers.append({key: fields[key] for key in ("rank", "writer") if key in fields})
    return writers, starts, last_step


def _write_steps(
    out: Path, thread: Mapping[str, Any], steps: Sequence[SavedStep], last_step: int, *, is_first: bool
) -> None:
    """Write the steps of a thread, and the run that they are of if it is not there yet."""
    if not steps:
        return
    emitter = Emitter(out, **thread["writer"], reports_cost=False)
    if is_first:
        emitter.run(thread["name"], thread["meta"], id=thread["id"])
    is_initial = is_first and not last_step and steps[0].phase == "prefill"  # as it numbers them itself
    for number, step in enumerate(steps, last_step + (not is_initial)):
        name = step.phase if step.phase in ("prefill", "decode") else "step"
        facts = {"phase": step.phase, "tokens": step.tokens, "batch": step.batch, "context": step.context}
        place = {"t": step.start, "dur": step.duration, "step": number, "track": thread["track"]}
        emitter.event("step", name, **place, **facts)
    emitter.close()


def _is_running(name: str) -> bool:
    """Return whether the process of a file of last steps runs: one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{name.split('-')[1]}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def list_process_tree(pid: int) -> list[int]:
    """Return a process and its running descendants (Linux; elsewhere the process alone)."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    tree, unvisited = [], [pid]
    while unvisited:
        tree.append(unvisited.pop())
        unvisited += children.get(tree[-1], [])
    return tree


def list_run_processes(run_id: str) -> list[int]:
    """Return the processes whose environment names a run, whatever their parent is now."""
    variable = f"{RUN_ID_VARIABLE}={run_id}".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
        except OSError:
            continue
    return pids


def _is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").resolve().name.startswith("python")
    return False


def _read_maps(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


def _read_command(pid: int) -> str:
    return clean(" ".join(_read_words(pid, "cmdline")), 60) or "?"


def _read_words(pid: int, name: str) -> list[str]:
    """Return the words of a process's command line or environment; empty if it is gone or not ours."""
    try:
        words = Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in words if word]


def _tell_outer_recorder() -> None:
    """Report to a tracetui that records this one that the program is recorded here."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        with contextlib.suppress(OSError), Path(folder, f"process-{os.getpid()}").open("a") as file:
            file.write("records\n")


def _format_count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _explain_idle_imports(reports: Mapping[int, ProcessReport]) -> str:
    """Return why a program that imported torch or llama_cpp has no step; empty if it imported neither."""
    versions = [report.torch for report in reports.values() if report.torch]
    if versions:
        return (
            f"torch {versions[0].removesuffix(' forked')} was imported, but no module with parameters was "
            "called from outside of compiled code"
        )
    if missed := next((report.missed for report in reports.values() if report.missed), ""):
        return f"{missed} was imported past the recorder, which the program took out of sys.meta_path"
    if any(report.has_llama_cpp for report in reports.values()):
        return "llama_cpp was imported, but none of its contexts decoded anything"
    return ""
