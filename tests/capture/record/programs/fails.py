import torch
from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
generate(model, 5)
try:
    model(torch.ones(1, 1))
except RuntimeError as e:
    print(type(e).__name__)
raise SystemExit("gave up")
