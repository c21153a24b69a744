"""Compiled functions that call a model: one gets it, one names it; the graphs of one are in pieces."""

import torch
from _models import Decoder, seeded
from torch._dynamo.utils import counters

model = seeded(Decoder).eval()


def decode_one(net, ids):
    return net(ids)[:, -1:].argmax(-1)


def decode_in_pieces(ids):
    out = model(ids)[:, -1:].argmax(-1)
    torch._dynamo.graph_break()
    return out + 0


with torch.inference_mode():
    for number in range(3):
        ids = model(torch.ones(1, 6, dtype=torch.long))[:, -1:].argmax(-1)
        step = (
            torch.compile(decode_one, backend="eager", fullgraph=True),
            torch.compile(lambda net, ids: model(ids)[:, -1:].argmax(-1), backend="eager"),
            lambda net, ids: torch.compile(decode_in_pieces, backend="eager")(ids),
        )[number]
        out = []
        for _ in range(20):
            ids = step(model, ids)
            out.append(ids.item())
        print(out)
print(dict(counters["stats"]), len(counters["graph_break"]))
