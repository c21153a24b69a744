import torch
from _models import Decoder, generate, seeded

print(generate(seeded(Decoder).eval().to(torch.bfloat16), 20))
