"""Models of the programs beside this file: small, random, and alike each time."""

import torch
from torch import nn

WORDS = 50


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm, self.mix, self.mlp = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.mlp(torch.relu(self.mix(self.norm(x))))


class Decoder(nn.Module):
    """Token numbers in, logits of the next token out."""

    def __init__(self, layers=2, width=32):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def seeded(make, *args, **kwargs):
    """Return a model with the same weights each time, on one thread of the processor."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return make(*args, **kwargs)


def generate(model, tokens=40, batch=1, prompt=6):
    """Decode with a cache, as far as times go, and return the numbers that came out."""
    out = []
    with torch.inference_mode():
        logits = model(torch.ones(batch, prompt, dtype=torch.long))
        for _ in range(tokens):
            ids = logits[:, -1:].argmax(-1)
            out.append(ids[0, 0].item())
            logits = model(ids)
    return out
