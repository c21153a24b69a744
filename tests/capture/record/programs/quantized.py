"""Eleven forwards of a quantized model, whose weights torch hides; observers are called first."""

import torch
from torch import nn

torch.set_num_threads(1)
plain = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
model = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear})
with torch.no_grad():
    for _ in range(11):
        model(torch.ones(2, 8))
print("done")
