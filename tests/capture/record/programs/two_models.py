"""Two models of one class and size answer in turn, as when weights are compared; both make steps."""

import torch
from _models import Decoder, generate, seeded

models = [seeded(Decoder).eval() for _ in range(2)]
with torch.no_grad():
    models[1].head.weight.mul_(-1)
for prompt in (5, 6, 7):
    print([generate(model, 7, prompt=prompt) for model in models])
