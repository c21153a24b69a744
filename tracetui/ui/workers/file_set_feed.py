"""A feed of many files: one source on the screen, which asks the files."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from capture.errors import CaptureError
from capture.files.addresses import mask_credentials
from capture.import_log import ImportLog
from capture.run import Run
from capture.tasks import describe_activity
from tracetui.fleet.executors import local
from tracetui.fleet.file_job import build_empty_events
from tracetui.fleet.rank_hosts import Hosts
from tracetui.fleet.running_query import FileQuerier
from tracetui.ui.messages import LoadFailed, RunsChanged
from tracetui.ui.run_info import RunInfo
from tracetui.ui.workers.feed import LoadProgress, Post
from tracetui.views import ManyFiles, load_view


class FileSetFeed:
    """Finds the files, and posts them again whenever more of an answer has arrived."""

    def __init__(
        self, paths: Sequence[str], view: str, executor: str, hosts: Hosts, options: Mapping[str, Any]
    ) -> None:
        """Ask files on processes or a cluster; `options` are those of each file job."""
        self._paths, self._view, self._options = list(paths), view, options
        self._executor, self._hosts = executor, hosts
        self._began = time.monotonic()
        local.start_resource_tracker()
        self._post: Post = lambda message: None
        self._querier: FileQuerier | None = None

    def start(self, post: Post) -> None:
        self._post = post
        threading.Thread(target=self._find_files, name="finding", daemon=True).start()

    def describe_progress(self) -> LoadProgress:
        """Return the progress of the search for files."""
        activity, names = (
            describe_activity() or "looking for files",
            tuple(map(mask_credentials, self._paths)),
        )
        return LoadProgress(time.monotonic() - self._began, activity, names)

    def close(self) -> None:
        """Stop all queries and their processes."""
        if self._querier is not None:
            self._querier.close()

    def _find_files(self) -> None:
        try:
            self._querier = FileQuerier(
                self._paths, self._executor, self._hosts, self._post_file_set, **self._options
            )
            self._post_file_set()
        except CaptureError as e:
            self._post(LoadFailed(e))

    def _post_file_set(self) -> None:
        """Post the files as a newer snapshot."""
        if self._querier is None:
            return
        files = self._querier.files
        log = ImportLog(mask_credentials(self._paths[0]) + (" …" if len(self._paths) > 1 else ""))
        head = Run(f"{len(files):,} files", {}, build_empty_events(), log)
        source = ManyFiles(head, files, self._querier.answer)
        self._post(RunsChanged([source], [RunInfo()], [load_view(self._view)]))
