"""Two models of one kind choose each token together, and a third scores the texts: the steps are tokens."""

import torch
from _models import Decoder, seeded

first, second, judge = (seeded(Decoder, layers=layers).eval() for layers in (2, 2, 1))
for prompt in (5, 6, 7):
    text = torch.ones(1, prompt, dtype=torch.long)
    with torch.inference_mode():
        ids = text
        for _ in range(8):
            ids = (first(ids) + second(ids))[:, -1:].argmax(-1)
            text = torch.cat((text, ids), 1)
        print(text.tolist(), round(judge(text).sum().item(), 3))
