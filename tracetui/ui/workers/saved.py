"""Runs that are on this machine but not open: baselines and recordings."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture import places
from capture.addresses import masked
from capture.errors import CaptureError
from capture.open import Input
from capture.run import Run
from tracetui.ui.messages import Notice, RunsOpened
from tracetui.ui.run_info import describe_run
from tracetui.ui.workers.ask import describe_fault

MOST: Final = 100


def list_files(open_runs: Sequence[Run], opened: Sequence[str]) -> list[Path]:
    """Return baselines by name, then recordings from the newest, without the files that are open."""
    sources = (*(run.log.source for run in open_runs), *opened)
    open_paths = {os.path.realpath(source) for source in sources}
    saved = [*places.baselines(), *places.recordings()]
    return [path for path in saved if os.path.realpath(path) not in open_paths][:MOST]


def open_file(path: Input, against: bool) -> RunsOpened | Notice:
    """Return the runs of a file or folder, or a sentence why there are none."""
    from capture.open import load_all  # the loaders are there already when a screen is

    try:
        return RunsOpened(path, [(run, describe_run(run)) for run in load_all([path])], against)
    except CaptureError as e:
        return Notice(str(e))
    except Exception as e:
        return Notice(describe_fault(f"{masked(str(path))} could not be read", e))
