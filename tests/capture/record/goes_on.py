"""A program that trains, answers and goes on, and tells what it is like when asked. It knows nothing of us.

    python goes_on.py [ITERATIONS]

With a number it runs so many iterations and tells itself once. Else it answers a line on stdin with a line of
JSON, until stdin ends. What it has computed is told as one digest of all results so far.
"""

import gc
import hashlib
import json
import os
import select
import sys
import threading
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)  # wraps the step of this optimizer
OPTIMIZER = sys.modules["torch.optim.optimizer"]
digest = hashlib.sha256()
PLACES = [
    (nn.Module, "__call__"),
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (torch.optim.Optimizer, "__init__"),
    (torch.optim.Optimizer, "profile_hook_step"),
    (torch.optim.AdamW, "step"),
    (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__"),
    (torch.autograd.profiler.profile, "__init__"),
    (torch.autograd.profiler.emit_nvtx, "__enter__"),
    (torch.autograd.profiler, "_enable_profiler"),
    (torch.autograd.profiler, "_disable_profiler"),
    (torch.cuda.CUDAGraph, "capture_begin"),
    (torch.cuda.CUDAGraph, "capture_end"),
    *((os, name) for name in ("_exit", "execv", "execve")),
]
BEFORE = [getattr(*place) for place in PLACES]


def iterate(number: int) -> None:
    """Train once, then answer once."""
    x = torch.full((4, 16), (number % 17) / 17)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        digest.update(model(x).numpy().tobytes())


def what_it_is_like(number: int) -> dict:
    """Return what could be changed by whoever attaches."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "iterations": number,
        "digest": digest.hexdigest(),
        "kilobytes": int(status["VmRSS"].split()[0]),
        "blocks": sys.getallocatedblocks(),
        "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "files": sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1,
        "known": [thread.name for thread in threading.enumerate()],
        "names": sorted(vars(sys.modules["__main__"])),
        "environment": sorted(name for name in os.environ if name.startswith(("TRACETUI", "KINETO"))),
        "path": sys.path,
        "changed": [
            name for (owner, name), it in zip(PLACES, BEFORE, strict=True) if getattr(owner, name) != it
        ],
        "hooks": len(OPTIMIZER._global_optimizer_pre_hooks) + len(OPTIMIZER._global_optimizer_post_hooks),
    }


def main() -> None:
    """Run."""
    if len(sys.argv) > 1:
        for number in range(int(sys.argv[1])):
            iterate(number)
        print(json.dumps(what_it_is_like(int(sys.argv[1]))))
        return
    number = 0
    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            print(json.dumps(what_it_is_like(number)), flush=True)
        iterate(number)
        number += 1


main()
