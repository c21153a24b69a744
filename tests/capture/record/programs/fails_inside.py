"""Prints the traceback of every error that passes through something of torch, then ends with one."""

import logging
import os
import sys
import traceback

import torch
from _models import Decoder, generate, seeded
from torch import nn

model = seeded(Decoder).eval()
generate(model, 5)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loss = nn.Linear(2, 1)(torch.ones(1, 2)).sum()
loss.backward()


def fail() -> torch.Tensor:
    raise ValueError("inside")


class Failing(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, item: int) -> int:
        raise KeyError(item)


compiled = nn.Sequential(nn.Linear(2, 2))
compiled.compile(backend="eager")
for call in (
    lambda: model(torch.full((1, 1), 10**6)),
    lambda: model(torch.ones(1, 1)),
    lambda: nn.Sequential(nn.Sequential(nn.Linear(2, 3)))(torch.ones(1, 5)),
    lambda: compiled("text"),
    loss.backward,
    lambda: torch.autograd.grad(loss, [torch.ones(1)]),
    lambda: torch.optim.SGD([], 0.1),
    lambda: optimizer.step(fail),
    lambda: next(iter(torch.utils.data.DataLoader(Failing()))),
    lambda: torch.profiler.profile(activities=["nonsense"]),
):
    try:
        call()
    except Exception as e:
        logging.exception(type(e).__name__)
        print("".join(traceback.format_exception(e)), len(traceback.extract_tb(sys.exc_info()[2])))
os.execv("/nonexistent", ["nonexistent"])
