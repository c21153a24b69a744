"""The program turns tokens into vectors, and calls the layers with these."""

import torch
from _models import Decoder, seeded
from torch import nn

model = seeded(Decoder).eval()
layers = nn.Sequential(*model.layers, model.head)
with torch.inference_mode():
    ids, out = torch.ones(2, 6, dtype=torch.long), []
    for _ in range(31):
        ids = layers(model.embed(ids))[:, -1:].argmax(-1)
        out.append(ids.tolist())
print(out)
