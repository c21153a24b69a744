import torch
from _models import Decoder, seeded

model = seeded(Decoder)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(24):
    model(torch.randint(0, 50, (2, 8))).square().mean().backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
print("done")
