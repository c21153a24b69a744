import torch
from _models import Decoder, generate, seeded
from torch.profiler import ProfilerActivity, profile, schedule

model = seeded(Decoder).eval()
generate(model, 5)
seen = []


def ready(prof):
    seen.append(sum(e.count for e in prof.key_averages() if e.key == "aten::embedding"))


plan = schedule(wait=1, warmup=1, active=3, repeat=2)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as prof:
    for _ in range(12):
        model(torch.ones(1, 1, dtype=torch.long))
        prof.step()
print(seen)
