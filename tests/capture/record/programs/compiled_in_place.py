from _models import Decoder, generate, seeded
from torch._dynamo.utils import counters

model = seeded(Decoder).eval()
model.compile(backend="eager")
print(generate(model, 20))
print(dict(counters["stats"]), dict(counters["graph_break"]))
