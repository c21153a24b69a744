"""A compiled model under torch.profiler: python compiled.py TRACE.

Print the seconds of the steps by the program's own clock, and the total of the profiler's table of averages.
"""

import json
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=192, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=500,
)  # fmt: skip
model, ids, times = LlamaForCausalLM(config).eval(), torch.arange(64)[None], []
with torch.no_grad():
    compiled = torch.compile(lambda ids: model(ids, use_cache=False).logits, dynamic=False)
    for _ in range(3):
        compiled(ids)
    with torch.profiler.profile(record_shapes=True) as profiler:
        for _ in range(6):
            start = time.perf_counter()
            with torch.profiler.record_function("forward"):
                compiled(ids)
            times.append(time.perf_counter() - start)
            profiler.step()
profiler.export_chrome_trace(sys.argv[1])
averages = profiler.key_averages()
self_us = {average.key: average.self_cpu_time_total for average in averages}
counts = {average.key: average.count for average in averages}
print(json.dumps({"times": times, "self_us": self_us, "counts": counts}))
