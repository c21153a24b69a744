"""Two ranks that train a model sharded by FSDP2, under torch.profiler: python sharded.py FOLDER.

Each rank writes the seconds of forward, backward and optimizer of its steps by its own clock.
"""

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

folder = Path(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(0)
distributed.init_process_group("gloo")
config = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=1000,
)  # fmt: skip
model = LlamaForCausalLM(config)
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
ids, times = torch.arange(128).reshape(2, 64), []


def step():
    marks = [time.perf_counter()]
    loss = model(ids, labels=ids, use_cache=False).loss
    marks.append(time.perf_counter())
    loss.backward()
    marks.append(time.perf_counter())
    optimizer.step()
    optimizer.zero_grad()
    marks.append(time.perf_counter())
    times.append([after - before for before, after in pairwise(marks)])


for _ in range(2):
    step()
times.clear()
schedule = torch.profiler.schedule(wait=0, warmup=0, active=4, repeat=1)
path = str(folder / f"rank{distributed.get_rank()}.pt.trace.json")
with torch.profiler.profile(
    record_shapes=True, schedule=schedule, on_trace_ready=lambda made: made.export_chrome_trace(path)
) as profiler:
    for _ in range(4):
        step()
        profiler.step()
rank = distributed.get_rank()
(folder / f"clock{rank}.txt").write_text(json.dumps(times))
distributed.destroy_process_group()
os._exit(0)  # else one of ten ends aborts in the threads of gloo
