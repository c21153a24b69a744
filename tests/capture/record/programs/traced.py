import torch
from _models import Decoder, seeded

model = seeded(Decoder).eval()
ids = torch.ones(1, 4, dtype=torch.long)
traced, symbolic = torch.jit.trace(model, ids), torch.fx.symbolic_trace(model.layers[0])
print(len(list(traced.graph.nodes())), len(symbolic.graph.nodes))
with torch.no_grad():
    print([round(traced(ids).sum().item(), 3) for _ in range(6)])
