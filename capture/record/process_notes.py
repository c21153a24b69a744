"""Notes, shared step numbers and last steps from a recorded process to its recorder, next to the recording.

The recorder names the folder in TRACETUI_ACCOUNT; without it nothing is noted, and each process counts its
own steps. No error in here ever reaches the program. A process that was attached to gets its settings from
the recorder instead, because its environment stays the program's.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call_phases import CallFacts

OUT_VARIABLE: Final = "TRACETUI_OUT"  # file that the program is recorded into
NOTES_VARIABLE: Final = "TRACETUI_ACCOUNT"  # folder of the notes
RUN_VARIABLE: Final = "TRACETUI_RUN"  # id of the run that child processes join
DETAIL_VARIABLE: Final = "TRACETUI_DETAIL"  # layers or steps: what is timed, if not every module
HEAD_BYTES: Final = 8192  # of the text at the begin of a file of last steps
SAVED_STEPS: Final = 128  # in such a file
STEP_FORMAT: Final = "=6q"  # duration, phase, tokens, batch, context; the start last, so that it is whole
SAVED_PHASES: Final = (None, "prefill", "decode", "verify", "forward", "mixed")

_overrides: dict[str, str] = {}
_at_start: dict[str, str] = {}


def override_settings(settings: Mapping[str, str]) -> None:
    """Use these settings instead of the environment; an empty mapping restores the environment."""
    _overrides.clear()
    _overrides.update(settings)


def read_setting(name: str) -> str | None:
    """Return a setting, as overridden or from the environment, or None."""
    return _overrides.get(name) or os.environ.get(name) or _at_start.get(name)


def remember_environment() -> None:
    """Remember the settings of the environment, which the program may clear before its first call."""
    _at_start.update((k, v) for k, v in os.environ.items() if k.startswith("TRACETUI_"))


def append_note(text: str) -> None:
    """Append a line to the notes of this process."""
    path = _build_path("process-%d" % os.getpid())
    if path:
        try:
            _write_note(path, (" ".join(text.split()) + "\n").encode("utf-8", "replace"))
        except OSError as e:
            with suppress(OSError):  # an empty file needs no room
                _write_note("%s-%d-%d" % (_build_path("refused"), os.getpid(), e.errno or 0), b"")


def _write_note(path: str, line: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def claim_first() -> bool:
    """Return True in the first process that calls this: only that one writes without a writer id."""
    path = _build_path("first")
    if path is None:
        return False
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


class StepCounter:
    """Numbers steps from 1, over all processes that share a folder."""

    def __init__(self, *, shared: bool) -> None:
        self._path = _build_path("steps") if shared else None
        self._next_number, self._last_number = 1, 0  # the range of numbers claimed but not used yet

    def claim_number(self) -> int:
        """Return the next number; after those of a folder that is gone, and alone, it is one more."""
        if self._next_number > self._last_number:
            self.reserve(1)
        number = self._next_number
        self._next_number += 1
        return number

    def reserve(self, count: int) -> None:
        """Claim this many numbers at once, as bytes appended to the shared file; use up those before."""
        if not self._path or count < 1:
            return
        with suppress(OSError):  # not kept open: a program may close the number and open it as its own file
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                written = os.write(fd, b"." * count)
                self._last_number = os.lseek(fd, 0, os.SEEK_CUR)
            finally:
                os.close(fd)
            self._next_number = self._last_number - written + 1


class SavedStep(NamedTuple):
    """A step in a file of last steps; None is unknown."""

    start: int
    duration: int
    phase: str | None
    tokens: int | None
    batch: int | None
    context: int | None


class LastSteps:
    """The last steps of a thread, in a file that is mapped into memory, for a process that is killed.

    Its recorder then adds to the recording what was not written. Nothing is saved where there is no folder of
    notes, or no room in it, or while attached: what is mapped stays mapped, because a thread may be using it.
    """

    def __init__(self, number: int) -> None:
        self._count = 0
        self._memory: memoryview | None = None
        self._numbers: memoryview | None = None  # the same memory
        self._path = _build_path("last-%d-%d" % (os.getpid(), number))
        if self._path and not _overrides:
            with suppress(Exception):  # a system without it, a full disk
                self._memory = _map_file(self._path)
                self._numbers = self._memory.cast("q")

    def describe(self, text: str) -> None:
        """Write what is to be known of the run and the thread, as JSON; nothing if it is too long."""
        line = text.encode("utf-8", "replace")
        if self._memory is not None and len(line) < HEAD_BYTES:
            self._memory[: len(line) + 1] = line + b"\0"

    def save(self, start: int, duration: int, facts: CallFacts | None, *, is_over: bool) -> None:
        """Save a step; one that is not over is replaced by the next."""
        numbers = self._numbers
        if numbers is None:
            return
        at = _FIRST_NUMBER + self._count % SAVED_STEPS * _STEP_NUMBERS
        phase, tokens, batch, context, _ = facts or _NO_FACTS
        numbers[at] = duration
        numbers[at + 1] = _PHASE_NUMBERS.get(phase, 0)
        numbers[at + 2] = -1 if tokens is None else tokens
        numbers[at + 3] = -1 if batch is None else batch
        numbers[at + 4] = -1 if context is None else context
        numbers[at + 5] = start  # last: until then it is the step before, which is written
        self._count += is_over

    def settle(self) -> None:
        """Let no other step replace the one that is not over."""
        self._count += 1

    def forget(self, *, all_steps: bool = False) -> None:
        """Forget the step that is not over, or all: they were no steps."""
        if self._memory is not None:
            at, end = (0, SAVED_STEPS) if all_steps else (number := self._count % SAVED_STEPS, number + 1)
            places = slice(HEAD_BYTES + at * _STEP_BYTES, HEAD_BYTES + end * _STEP_BYTES)
            self._memory[places] = bytes((end - at) * _STEP_BYTES)
            self._count = 0 if all_steps else self._count

    def leave_to_parent(self) -> None:
        """Save no more, in a forked child: the memory is shared with its parent."""
        self._memory = self._numbers = None

    def remove(self) -> None:
        """Remove the file, as all steps are written."""
        if self._numbers is not None and self._path:
            with suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108


_STEP_BYTES: Final = 48
_FIRST_NUMBER: Final = HEAD_BYTES // 8
_STEP_NUMBERS: Final = _STEP_BYTES // 8
_NO_FACTS: Final = None, None, None, None, None
_FILE_BYTES: Final = HEAD_BYTES + SAVED_STEPS * _STEP_BYTES
_PHASE_NUMBERS: Final = {phase: number for number, phase in enumerate(SAVED_PHASES)}


def _map_file(path: str) -> memoryview:
    """Return new bytes of a file in memory; no descriptor stays open.

    `mmap` of Python keeps one, which a program may close and open again as its own.
    """
    import ctypes

    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - of a program that went on as another one
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _FILE_BYTES)  # a write to memory without room on the disk would be fatal
        function = ctypes.CDLL(None)["mmap"]
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        function.restype = ctypes.c_void_p
        address = function(None, _FILE_BYTES, 3, 1, fd, 0)  # to read and write, shared
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError
    except BaseException:
        os.unlink(path)  # noqa: PTH108
        raise
    finally:
        os.close(fd)
    return memoryview((ctypes.c_char * _FILE_BYTES).from_address(address)).cast("B")


def read_last_steps(data: bytes) -> tuple[bytes, list[SavedStep]]:
    """Return the text and the steps in a file of last steps, in order of their starts."""
    import struct

    steps: list[SavedStep] = []
    if len(data) != _FILE_BYTES:
        return b"", steps
    for duration, phase, *numbers, start in struct.iter_unpack(STEP_FORMAT, data[HEAD_BYTES:]):
        if start > 0 and duration >= 0 and 0 <= phase < len(SAVED_PHASES):
            facts = [number if number >= 0 else None for number in numbers]
            steps.append(SavedStep(start, duration, SAVED_PHASES[phase], *facts))
    return data[:HEAD_BYTES].partition(b"\0")[0], sorted(steps, key=lambda step: (step.start, step.duration))


def _build_path(name: str) -> str | None:
    folder = read_setting(NOTES_VARIABLE)
    return folder + os.sep + name if folder else None
