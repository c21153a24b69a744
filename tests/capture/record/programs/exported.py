import torch
from _models import Decoder, seeded

model = seeded(Decoder).eval()
program = torch.export.export(model, (torch.ones(1, 4, dtype=torch.long),))
print(len(program.graph.nodes))
runs = program.module()
for _ in range(5):
    runs(torch.ones(1, 4, dtype=torch.long))
