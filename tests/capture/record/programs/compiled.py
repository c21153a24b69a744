import torch
from _models import Decoder, generate, seeded
from torch._dynamo.utils import counters

model = torch.compile(seeded(Decoder).eval(), backend="eager")
print(generate(model, 20))
print(dict(counters["stats"]), dict(counters["graph_break"]))
