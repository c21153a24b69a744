import torch
from _models import Decoder, seeded
from torch._dynamo.utils import counters

model = seeded(Decoder)
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(8):
    compiled(torch.ones(2, 8, dtype=torch.long)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print(dict(counters["stats"]), dict(counters["graph_break"]))
