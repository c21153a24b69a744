"""Runs that lie ready beside those that are open: baselines and recordings."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture import places
from capture.errors import CaptureError
from capture.run import Run
from tracetui.ui.messages import RunsOpened, Told
from tracetui.ui.run_info import facts
from tracetui.ui.workers.ask import fault

MOST: Final = 100


def files(open_runs: Sequence[Run], fetched: Sequence[Path]) -> list[Path]:
    """Baselines by name, then recordings from the newest, without what is open."""
    sources = (*(run.log.source for run in open_runs), *map(str, fetched))
    known = {os.path.realpath(source) for source in sources}
    found = [*places.baselines(), *places.recordings()]
    return [path for path in found if os.path.realpath(path) not in known][:MOST]


def opened(path: Path, against: bool) -> RunsOpened | Told:
    """The runs of a file or folder, or why there are none."""
    from capture.open import load_all  # the loaders are there already when a screen is

    try:
        return RunsOpened(path, [(run, facts(run)) for run in load_all([path])], against)
    except CaptureError as e:
        return Told(str(e))
    except Exception as e:
        return Told(fault(f"{path.name} could not be read", e))
