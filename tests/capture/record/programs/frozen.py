"""A scripted model is frozen, so that its weights are constants of its graph, and loaded again."""

import torch
from _models import Block, seeded

torch.jit.freeze(torch.jit.script(seeded(Block).eval())).save("frozen.pt")
loaded, loss = torch.jit.load("frozen.pt"), torch.jit.script(torch.nn.MSELoss())
with torch.inference_mode():
    for number in range(30):
        out = loaded(torch.full((2, 32), float(number)))
        print(round(loss(out, torch.zeros(2, 32)).item(), 3))
print(list(loaded.parameters()))
