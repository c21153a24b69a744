"""A compiled function calls the model and its loss; a backend calls its graphs as modules."""

import torch
from _models import Decoder, seeded

model = seeded(Decoder)
optimizer = torch.optim.AdamW(model.parameters())


@torch.compile(backend="aot_eager")
def compute_loss(ids):
    return model(ids).square().mean()


for _ in range(12):
    loss = compute_loss(torch.ones(2, 8, dtype=torch.long))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(round(loss.item(), 3))
