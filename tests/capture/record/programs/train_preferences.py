"""A frozen copy reads each pair of texts before the model that learns from them and makes the steps."""

import copy

import torch
from _models import WORDS, Decoder, seeded

model = seeded(Decoder)
frozen = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(12):
    good, bad = torch.randint(WORDS, (2, 4, 9))
    with torch.no_grad():
        margin = frozen(good).mean() - frozen(bad).mean()
    loss = -torch.nn.functional.logsigmoid(model(good).mean() - model(bad).mean() - margin)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(round(loss.item(), 4))
