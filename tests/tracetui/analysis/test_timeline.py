"""The timeline: busy time without overlap, whole and in cells."""

import numpy as np
import pytest

from tests.tracetui.runs import made, nested
from tracetui.analysis.timeline import CELLS, timeline
from tracetui.look import Look


def test_a_timeline_adds_no_overlap_up() -> None:
    found = timeline(nested(), Look())
    assert found is not None
    busy = {lane: (count, ns, share) for lane, _, count, ns, share, *_ in found.lanes.iter_rows()}
    assert busy == {"main": (5, 100, 1.0), "other": (1, 5, 0.05)}
    assert found.whole == found.window == (0, 100)


def test_the_cells_of_a_timeline_hold_the_busy_time() -> None:
    random = np.random.default_rng(1)
    starts = np.cumsum(random.integers(10, 500, 400))
    durs = np.minimum(random.integers(1, 400, 400), np.append(np.diff(starts), 100))
    run = made(
        [{"name": "k", "track": "gpu", "t": int(t), "dur": int(d)} for t, d in zip(starts, durs, strict=True)]
    )
    for zoom in (None, (int(starts[50]), int(starts[60])), (int(starts[50]), int(starts[50]) + 7)):
        found = timeline(run, Look(zoom=zoom))
        assert found is not None
        low, high = found.window
        inside = np.minimum(starts + durs, high) - np.maximum(starts, low)
        width = (high - low) / CELLS
        assert found.cells["busy"].sum() * width == pytest.approx(inside[inside > 0].sum(), rel=1e-6)
        assert found.lanes["busy_ns"].sum() == inside[inside > 0].sum()
