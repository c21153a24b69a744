import torch
from _models import Decoder, seeded
from torch import nn

model = seeded(Decoder)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(12):
    ids = torch.randint(0, 50, (4, 16))
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 4))
