"""Read files and the log in a thread, with progress; list and open saved baselines and recordings."""

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from capture.errors import CaptureError, UnreadableError
from capture.files import user_dirs
from capture.files.addresses import mask_credentials
from capture.load_runs import Input
from capture.run import Run
from capture.tasks import describe_activity
from tracetui.ui.messages import LoadFailed, RunsChanged, RunsOpened, StatusMessage, describe_fault
from tracetui.ui.run_info import describe_run
from tracetui.ui.workers.feed import LoadProgress, Post
from tracetui.views import Answer, load_view

MOST_SAVED_FILES: Final = 100


class FileReader:
    """A feed that reads files once, in a thread, and posts their runs."""

    def __init__(
        self, paths: Sequence[str], view: str, merge: bool = False, options: Mapping[str, Any] | None = None
    ) -> None:
        """Read files and start with a view; `options` are further arguments of `load_all`."""
        self._paths, self._view, self._merge, self._options = list(paths), view, merge, options or {}
        self._began = time.monotonic()
        self._total_bytes = sum(_measure_file(p) for p in self._paths)

    def start(self, post: Post) -> None:
        threading.Thread(target=self._read, args=(post,), name="reading", daemon=True).start()

    def describe_progress(self) -> LoadProgress:
        """Return the bytes read so far, by the positions of our open descriptors (Linux)."""
        read = _count_read_bytes({os.path.realpath(path) for path in self._paths})
        activity, names = describe_activity() or "reading", tuple(map(mask_credentials, self._paths))
        return LoadProgress(time.monotonic() - self._began, activity, names, read, self._total_bytes)

    def _read(self, post: Post) -> None:
        """Read all files and post their runs; if none can be read, post the first error."""
        from capture.load_runs import group_inputs, load_all  # loaders are imported while the screen starts

        runs: list[Run] = []
        errors: list[CaptureError] = []
        for group in group_inputs(self._paths, merge=self._merge):
            try:
                runs += load_all(group, merge=self._merge, **self._options)
            except Exception as e:
                errors.append(_convert_error(e, str(group[0])))
        if not runs:
            post(LoadFailed(errors[0] if errors else UnreadableError("nothing to open")))
            return
        try:
            post(RunsChanged(runs, [describe_run(r) for r in runs], [load_view(self._view)]))
        except Exception as e:
            post(LoadFailed(_convert_error(e, self._paths[0])))
        if errors:
            post(StatusMessage(f"{errors[0]}" + (f" (+{len(errors) - 1})" if len(errors) > 1 else "")))


def _convert_error(error: Exception, path: str) -> CaptureError:
    """Return a CaptureError as it is; describe any other error as an internal one."""
    if isinstance(error, CaptureError):
        return error
    return UnreadableError(describe_fault("could not be read", error), where=mask_credentials(path))


def _measure_file(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _count_read_bytes(paths: set[str]) -> int:
    """Return the sum of the positions of our descriptors of some files, as far as the kernel reports them."""
    total = 0
    with suppress(OSError):
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError, ValueError):
                if str(link.readlink()) in paths:
                    position = Path(f"/proc/self/fdinfo/{link.name}").read_text().split("\n", 1)[0]
                    total += int(position.removeprefix("pos:"))
    return total


def list_saved_files(open_runs: Sequence[Run], opened: Sequence[str]) -> list[Path]:
    """Return baselines by name, then recordings from the newest, without open files."""
    open_paths = set(map(os.path.realpath, (*(run.log.source for run in open_runs), *opened)))
    saved = [*user_dirs.list_baselines(), *user_dirs.list_recordings()]
    return [path for path in saved if os.path.realpath(path) not in open_paths][:MOST_SAVED_FILES]


def find_saved_file(name: str) -> Path | None:
    """Return the baseline or recording of a name; None without one."""
    saved = [*user_dirs.list_baselines(), *user_dirs.list_recordings()]
    return next((path for path in saved if path.name == name), None)


def load_history(run: Run, row: str) -> Answer | str:
    """Read the trend of a row over the logged runs of the same program; a text says why there is none."""
    from tracetui.history import part
    from tracetui.history.part_index import choose_runs, read_log
    from tracetui.history.row_trends import compute_trend
    from tracetui.history.run_log import RunLog, find_own_log

    try:
        tables = read_log(RunLog(find_own_log()))
        runs, notes = choose_runs(tables.runs, "commit", example=part.describe_run(run))
        if not runs.height:
            return "the log has no run like this one: tracetui log add FILE"
        trend = compute_trend(tables, runs, f"^{re.escape(row)}$")
    except CaptureError as e:
        return str(e)
    except Exception as e:
        return describe_fault("the log could not be read", e)
    if not trend.rows.height:
        return f"{runs.height} runs like this one in the log: too few have {row}"
    sources = runs.select(run_after="file", source="source")
    rows = trend.rows.join(sources, on="run_after", how="left", maintain_order="left")
    return replace(trend, rows=rows, notes=(*trend.notes, *notes, *tables.faults))


def load_saved_file(path: Input, compares: bool) -> RunsOpened | StatusMessage:
    """Return the runs of a file or folder, or a message why there are none."""
    from capture.load_runs import load_all  # imported already while a screen is shown

    try:
        return RunsOpened(path, [(run, describe_run(run)) for run in load_all([path])], compares)
    except CaptureError as e:
        return StatusMessage(str(e))
    except Exception as e:
        return StatusMessage(describe_fault(f"{mask_credentials(str(path))} could not be read", e))
