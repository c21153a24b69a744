import torch
from _models import Decoder, seeded
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Counts(TorchFunctionMode):
    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        Counts.count += 1
        return func(*args, **(kwargs or {}))


class Ops(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Ops.count += 1
        return func(*args, **(kwargs or {}))


model = seeded(Decoder).eval()
with torch.no_grad(), Counts(), Ops():
    for _ in range(5):
        model(torch.ones(1, 3, dtype=torch.long))
print(Counts.count, Ops.count)
