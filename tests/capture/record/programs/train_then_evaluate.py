import torch
from _models import Decoder, seeded

model = seeded(Decoder)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    for _ in range(4):
        model(torch.randint(0, 50, (2, 8))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            model(torch.randint(0, 50, (2, 8)))
    model.train()
print("done")
