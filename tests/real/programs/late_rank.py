"""Two ranks of torchrun, of which one is late before each all_reduce: python late_rank.py FOLDER LATE_MS.

Each rank prints how long it slept and how long its all_reduces took by its own clock.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed

folder, late_s = Path(sys.argv[1]), float(sys.argv[2]) / 1000
torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
weight, gradient = torch.randn(768, 768), torch.randn(500_000)
slept, reduced = [], []


def step():
    for _ in range(3):
        weight @ weight
    start = time.perf_counter()
    if rank == 1 and late_s:
        time.sleep(late_s)
    middle = time.perf_counter()
    distributed.all_reduce(gradient)
    slept.append(middle - start)
    reduced.append(time.perf_counter() - middle)


for _ in range(3):
    step()
slept.clear()
reduced.clear()
distributed.barrier()
schedule = torch.profiler.schedule(wait=0, warmup=0, active=12, repeat=1)
path = str(folder / f"rank{rank}.pt.trace.json")
with torch.profiler.profile(
    record_shapes=True, schedule=schedule, on_trace_ready=lambda made: made.export_chrome_trace(path)
) as profiler:
    for _ in range(12):
        step()
        profiler.step()
(folder / f"clock{rank}.txt").write_text(json.dumps({"slept": slept, "reduced": reduced}))
distributed.destroy_process_group()
os._exit(0)  # else one of ten ends aborts in the threads of gloo
