"""Two forwards of one encoder in a step."""

import torch
from _models import Decoder, seeded

model = seeded(Decoder)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(9):
    a, b = (model(torch.randint(0, 50, (2, 8))) for _ in range(2))
    (a - b).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done")
