"""Ranks of gloo under torch.profiler, one of them late: late_arrivals.py FOLDER DELAY_MS ELEMENTS STEPS

The last rank sleeps before each all_reduce. Each rank writes its trace, and when it came to each all_reduce
by the clock of the machine.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

folder, delay_ms, elements, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
matrix, gradient = torch.randn(256, 256), torch.randn(elements)
arrivals = []


def step() -> None:
    for _ in range(3):
        matrix @ matrix
    if rank == last and delay_ms:
        time.sleep(delay_ms / 1000)
    arrivals.append(time.monotonic_ns())
    dist.all_reduce(gradient)


for _ in range(3):
    step()
arrivals.clear()
dist.barrier()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for i in range(steps):
        with record_function(f"ProfilerStep#{i}"):
            step()
profiler.export_chrome_trace(f"{folder}/rank{rank}.pt.trace.json")
Path(folder, f"arrivals{rank}.txt").write_text(json.dumps(arrivals))
dist.destroy_process_group()
