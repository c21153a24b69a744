"""A model writes texts that a copy of it and a larger one read, and learns from each: it makes the steps."""

import torch
from _models import Decoder, seeded

author, reference = (seeded(Decoder).eval() for _ in range(2))
judge = seeded(Decoder, layers=4).eval()
optimizer = torch.optim.SGD(author.parameters(), 0.01)
for prompt in (5, 6, 7, 8):
    ids = text = torch.ones(1, prompt, dtype=torch.long)
    with torch.no_grad():
        for _ in range(20):
            ids = author(ids)[:, -1:].argmax(-1)
            text = torch.cat((text, ids), 1)
        worth = reference(text).mean() - judge(text).mean()
    (author(text).mean() * worth).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(text.tolist(), round(worth.item(), 3))
