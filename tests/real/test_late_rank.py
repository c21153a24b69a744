"""torchrun with gloo: who was late to a collective, by the clocks of the processes themselves."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.real import PROGRAMS, find_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 24
ELEMENTS = 1_000_000
MBIT = 200  # per second


def run_ranks(folder: Path, ranks: int, delay_ms: int, *around: str) -> dict[str, Any]:
    """Run the ranks under torchrun, within a command; return the row of their all_reduce."""
    launch = [find_program("host"), "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    program = [str(PROGRAMS / "late_arrivals.py"), str(folder), str(delay_ms), str(ELEMENTS), str(STEPS)]
    port = ["--master-port", str(29_600 + 30 * ranks + delay_ms)]
    subprocess.run([*around, *launch, *port, *program], check=True)
    report = [sys.executable, "-m", "tracetui", "report", "collectives", str(folder), "--format", "json"]
    done = subprocess.run(report, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["rows"]
    assert row["calls"] == STEPS
    return dict(row)


@pytest.mark.parametrize("delay_ms", [0, 1, 5, 20])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_arrival_is_that_of_the_processes_own_clock(tmp_path: Path, ranks: int, delay_ms: int) -> None:
    """Of 1 and 5 ms the machine's own noise may be more, so that no rank is named."""
    row = run_ranks(tmp_path, ranks, delay_ms)
    arrivals = np.array([json.loads((tmp_path / f"arrivals{rank}.txt").read_text()) for rank in range(ranks)])
    arrival_ns = (arrivals.max(axis=0) - arrivals.min(axis=0)).mean()
    print(
        f"{ranks} ranks, {delay_ms} ms: {row['arrival_ns'] / arrival_ns:.3f} of the own clocks, {row['rank']}"
    )
    assert row["arrival_ns"] == pytest.approx(arrival_ns, rel=0.05)
    assert row["rank"] in {0: (None,), 20: (ranks - 1,)}.get(delay_ms, (None, ranks - 1))


def test_a_link_of_known_rate_is_transfer(tmp_path: Path) -> None:
    """Two ranks send the whole gradient each over a loopback of 200 Mbit/s in a network namespace."""
    limit = f"ip link set lo up && tc qdisc add dev lo root tbf rate {MBIT}mbit burst 1mb latency 2s"
    around = ["unshare", "--net", "sh", "-c"]
    if subprocess.run([*around, limit], capture_output=True).returncode:
        pytest.skip("network namespaces or tc are not permitted here")
    row = run_ranks(tmp_path, 2, 0, *around, f'{limit} && exec "$@"', "sh")
    expected_ns = 2 * 4 * ELEMENTS * 8 / (MBIT * 1e6) * 1e9
    print(f"transfer {row['transfer_ns'] / expected_ns:.3f} of bytes over rate, {row['verdict']}")
    assert row["verdict"] == "transfer" and row["rank"] is None
    assert row["transfer_ns"] == pytest.approx(expected_ns, rel=0.1)
