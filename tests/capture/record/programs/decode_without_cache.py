import torch
from _models import Decoder, seeded

model = seeded(Decoder).eval()
ids = torch.ones(1, 4, dtype=torch.long)
with torch.no_grad():
    for _ in range(30):
        ids = torch.cat([ids, model(ids[:, -16:])[:, -1:].argmax(-1)], 1)
print(ids.tolist())
