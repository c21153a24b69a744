from _models import Decoder, generate, seeded
from torch._dynamo.utils import counters

model = seeded(Decoder).eval()
for layer in model.layers:
    layer.compile(backend="eager", fullgraph=True)
print(generate(model, 20))
print(dict(counters["stats"]), dict(counters["graph_break"]))
