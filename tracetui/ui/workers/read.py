"""Files become runs in a thread of their own, and how far it is can be asked."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.message import Message

from capture.errors import CaptureError, UnreadableError
from capture.run import Run
from capture.text import clean
from tracetui.ui.messages import LoadFailed, RunsChanged, Told, ViewsKnown
from tracetui.ui.run_info import facts
from tracetui.ui.workers.ask import fault
from tracetui.views import view, views


class Reading:
    """One opening of files; what comes of it is posted."""

    def __init__(self, paths: Sequence[str], cache: bool, view: str, merge: bool = False) -> None:
        self.paths = list(paths)
        self._cache, self._view, self._merge = cache, view, merge
        self._began = time.monotonic()
        self.size = sum(_size(p) for p in self.paths)

    def start(self, post: Callable[[Message], object]) -> None:
        threading.Thread(target=self._read, args=(post,), name="reading", daemon=True).start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def read(self) -> int:
        """Bytes so far, as far as the kernel tells where the open files stand."""
        return sum(_position(fd) for fd in _descriptors({os.path.realpath(p) for p in self.paths}))

    def _read(self, post: Callable[[Message], object]) -> None:
        """What can be read counts; only when nothing can, the first reason is the answer."""
        from capture.open import groups, load_all  # the loaders load while the screen comes up

        runs: list[Run] = []
        errors: list[CaptureError] = []
        for group in groups(self.paths, merge=self._merge):
            try:
                runs += load_all(group, cache=self._cache, merge=self._merge)
            except Exception as e:
                errors.append(_told(e, str(group[0])))
        if not runs:
            post(LoadFailed(errors[0] if errors else UnreadableError("there is nothing to open")))
            return
        try:
            post(RunsChanged(runs, [facts(r) for r in runs], [view(self._view)]))
            post(ViewsKnown(views()))  # the other views load while the first one is looked at
        except Exception as e:
            post(LoadFailed(_told(e, self.paths[0])))
        if errors:
            post(Told(f"{errors[0]}" + (f" (+{len(errors) - 1})" if len(errors) > 1 else "")))


def _told(error: Exception, path: str) -> CaptureError:
    """An error as a sentence; one that is no capture error is a fault of ours."""
    if isinstance(error, CaptureError):
        return error
    return UnreadableError(fault("could not be read", error), where=clean(path, 4096))


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _descriptors(paths: set[str]) -> list[str]:
    """Our open descriptors of some files."""
    found = []
    with contextlib.suppress(OSError):
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in paths:
                    found.append(link.name)
    return found


def _position(fd: str) -> int:
    try:
        first = Path(f"/proc/self/fdinfo/{fd}").read_text().split("\n", 1)[0]
        return int(first.removeprefix("pos:"))
    except (OSError, ValueError):
        return 0
