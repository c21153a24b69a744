import torch
from _models import WORDS, Decoder, seeded

model, numbers = seeded(Decoder).eval(), torch.Generator().manual_seed(0)
total = 0.0
for length in range(36, 11, -1):  # as lm-eval asks for the likelihood of texts: the longest first
    texts = torch.randint(0, WORDS, (4, length), generator=numbers)
    with torch.inference_mode():
        logits = model(texts[:, :-1]).log_softmax(-1)
    total += logits.gather(-1, texts[:, 1:, None]).sum().item()
print(round(total, 3))
