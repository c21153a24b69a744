import torch
from _models import Decoder, seeded

draft, target = seeded(Decoder, 1, 16).eval(), seeded(Decoder, 3, 32).eval()
with torch.inference_mode():
    for _ in range(250):
        for _ in range(4):
            draft(torch.ones(1, 1, dtype=torch.long))
        target(torch.ones(1, 5, dtype=torch.long))
