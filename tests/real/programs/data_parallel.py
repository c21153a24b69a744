"""Ten steps of training on each rank that torchrun starts: DDP sums gradients by gloo within `backward`."""

import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
distributed.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(
    nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(4)))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.ones(8, 128)).pow(2).mean().backward()
    optimizer.step()
rank = distributed.get_rank()
distributed.destroy_process_group()
if rank == 0:  # two processes would mix their lines
    print("done", flush=True)
os._exit(0)  # else one of ten ends aborts in the threads of gloo
