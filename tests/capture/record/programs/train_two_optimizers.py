import torch
from _models import Decoder, seeded

model = seeded(Decoder)
first = torch.optim.SGD(model.layers.parameters(), lr=0.1)
second = torch.optim.AdamW([*model.embed.parameters(), *model.head.parameters()])
for _ in range(10):
    model(torch.randint(0, 50, (2, 8))).square().mean().backward()
    for optimizer in (first, second):
        optimizer.step()
        optimizer.zero_grad()
print("done")
