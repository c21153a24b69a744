"""torchrun with gloo: who was late to a collective, by the clocks of the processes themselves."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.real import PROGRAMS, find_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 24


@pytest.mark.parametrize("delay_ms", [0, 20])
@pytest.mark.parametrize("ranks", [2, 4])
def test_arrival_is_that_of_the_processes_own_clock(tmp_path: Path, ranks: int, delay_ms: int) -> None:
    launch = [find_program("host"), "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    program = [str(PROGRAMS / "late_arrivals.py"), str(tmp_path), str(delay_ms), "1000000", str(STEPS)]
    subprocess.run([*launch, "--master-port", str(29_600 + 2 * ranks + delay_ms), *program], check=True)
    report = [sys.executable, "-m", "tracetui", "report", "collectives", str(tmp_path), "--format", "json"]
    done = subprocess.run(report, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["rows"]
    arrivals = np.array([json.loads((tmp_path / f"arrivals{rank}.txt").read_text()) for rank in range(ranks)])
    arrival_ns = np.median(arrivals.max(axis=0) - arrivals.min(axis=0))
    assert row["calls"] == STEPS
    assert row["arrival_ns"] == pytest.approx(arrival_ns, rel=0.05)
    assert row["rank"] == (ranks - 1 if delay_ms else None)
