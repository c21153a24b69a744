"""Windows of torch.profiler in which nothing ran: python torch_empty.py FOLDER."""

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule

CPU = [ProfilerActivity.CPU]
layer, x = torch.nn.Linear(8, 8), torch.ones(2, 8)


def save(name):
    return lambda profiler: profiler.export_chrome_trace(f"{sys.argv[1]}/{name}.json")


with profile(activities=CPU, schedule=schedule(wait=1, warmup=5, active=1)) as p:
    for _ in range(4):  # ends before the schedule is active
        layer(x)
        p.step()
save("warm_up")(p)
late = schedule(wait=2, warmup=1, active=5)
with profile(activities=CPU, schedule=late, on_trace_ready=save("last_step")) as p:
    for _ in range(3):  # ends when its window begins
        layer(x)
        p.step()
with profile(activities=CPU) as p:
    pass
save("stopped_at_once")(p)
with profile(activities=CPU, with_stack=True) as p:
    pass
save("functions")(p)
with profile(activities=CPU, profile_memory=True) as p:
    torch.empty(100)
save("allocation")(p)
