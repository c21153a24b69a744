"""A compiled model of two graphs under torch.profiler: python compiled_lines.py TRACE.

Print the number of the line of each marked call. Run with TORCH_COMPILE_DEBUG=1 in the folder of the trace.
"""

import json
import re
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(32, 128), nn.Linear(128, 32), nn.LayerNorm(32)

    def forward(self, x):
        hidden = self.norm(x)  # graph_0 cpp_fused_native_layer_norm_0
        hidden = self.up(hidden)  # first addmm
        torch._dynamo.graph_break()
        hidden = functional.gelu(hidden)  # graph_1 cpp_fused_gelu_0
        return self.down(hidden)  # last addmm


torch.set_num_threads(1)
model, x = Model().eval(), torch.ones(8, 32)
with torch.no_grad():
    compiled = torch.compile(model)
    compiled(x)
    with torch.profiler.profile() as profiler:
        compiled(x)
profiler.export_chrome_trace(sys.argv[1])
lines = enumerate(Path(__file__).read_text().splitlines(), 1)
print(
    json.dumps({mark[1]: at for at, text in lines if (mark := re.search(r"  # (graph_.*|.* addmm)$", text))})
)
