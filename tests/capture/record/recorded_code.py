"""Run code beside the recorder, and read what it recorded and told."""

import os
import subprocess
import sys
from pathlib import Path

import capture.record
from capture.load_runs import load
from capture.run import Run
from tests.capture.record.running import plain_environment

SITE = Path(capture.record.__file__).parent / "site"
STAND_IN = Path(__file__).parent / "fake_torch"
MODEL = """
import os, sys, torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
def work(times):
    with torch.no_grad():
        for _ in range(times):
            model(torch.ones(2, 8))
"""
# the same with the stand-in of torch, for what depends on nothing but the process
SMALL = """
import os, sys, torch
class Part(torch.nn.Module):
    def forward(self, ids):
        return ids
class Model(torch.nn.Module):
    def __init__(self):
        self.first, self.second = Part(), Part()
    def forward(self, ids):
        return self.second(self.first(ids))
model = Model()
def work(times):
    for _ in range(times):
        model(torch.Ids(2, 8))
"""


def run(code: str, folder: Path, *, model: str = MODEL) -> subprocess.CompletedProcess[str]:
    """Run a watched program; what it writes lies in a folder of its own."""
    account = folder / "account"
    account.mkdir(exist_ok=True)
    path = str(SITE) if model is MODEL else os.pathsep.join([str(SITE), str(STAND_IN)])
    watched = {"PYTHONPATH": path, "TRACETUI_OUT": str(folder / "out.jsonl"), "TRACETUI_RUN": "one"}
    env = plain_environment() | watched | {"TRACETUI_ACCOUNT": str(account)}
    return subprocess.run(
        [sys.executable, "-c", model + code],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def told(folder: Path) -> list[list[int]]:
    """Return the steps, forwards and threads that each process told of itself in the end."""
    lines = [
        line for path in (folder / "account").glob("process-*") for line in path.read_text().splitlines()
    ]
    return sorted([int(word) for word in line.split()[1:]] for line in lines if line.startswith("seen"))


def recorded(folder: Path) -> Run:
    (run,) = load(folder / "out.jsonl", cache=False)
    assert run.log.dropped == 0
    return run


def steps(folder: Path) -> int:
    return recorded(folder).events.filter(kind="step").height
