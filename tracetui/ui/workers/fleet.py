"""Many files on the screen: one run stands for them, and every question is asked of the files."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from capture.activity import current
from capture.addresses import masked
from capture.errors import CaptureError
from capture.importlog import ImportLog
from tracetui.fleet.course import Asker
from tracetui.fleet.executors import local
from tracetui.fleet.hosts import Hosts
from tracetui.fleet.job import empty_events
from tracetui.ui.messages import LoadFailed, RunsChanged
from tracetui.ui.run_info import RunInfo
from tracetui.ui.workers.feed import Post, Progress
from tracetui.views import ManyFiles, view


class ManyFilesFeed:
    """Finds the files once, and posts the run that stands for them whenever more of an answer has arrived."""

    live: Final = None  # nobody writes these files

    def __init__(
        self, paths: Sequence[str], view: str, on: str, hosts: Hosts, ways: Mapping[str, Any]
    ) -> None:
        """Ask files on processes or a cluster and begin with a view; `ways` are those of `jobs_of`."""
        self._paths, self._view, self._on, self._hosts, self._ways = list(paths), view, on, hosts, ways
        self._began = time.monotonic()
        local.prepare()
        self._post: Post = lambda message: None
        self._asker: Asker | None = None

    def start(self, post: Post) -> None:
        self._post = post
        threading.Thread(target=self._find, name="finding", daemon=True).start()

    def progress(self) -> Progress:
        """Return how long the files have been looked for."""
        seconds = time.monotonic() - self._began
        return Progress(seconds, current() or "looking for files", tuple(map(masked, self._paths)))

    def close(self) -> None:
        """End what is being asked; no process is left behind."""
        if self._asker is not None:
            self._asker.close()

    def _find(self) -> None:
        try:
            self._asker = Asker(self._paths, self._on, self._hosts, self._tell, **self._ways)
            self._tell()
        except CaptureError as e:
            self._post(LoadFailed(e))

    def _tell(self) -> None:
        """Post what stands for the files, as one that has seen more."""
        asker = self._asker
        if asker is not None:
            self._post(RunsChanged([_stand_in(asker, self._paths)], [RunInfo()], [view(self._view)]))


def _stand_in(asker: Asker, paths: Sequence[str]) -> ManyFiles:
    log = ImportLog(masked(paths[0]) + (" …" if len(paths) > 1 else ""))
    name = f"{len(asker.files):,} files"
    return ManyFiles(name, {}, empty_events(), log, answered=asker.answer, files=asker.files)
