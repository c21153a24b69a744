import socket

import torch
from _models import WORDS, Decoder, seeded
from torch import distributed, multiprocessing


def work(rank, port):
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(seeded(Decoder))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ids = torch.arange(12).reshape(2, 6)
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), (ids.flatten() + rank) % WORDS)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(round(loss.item(), 4))
    distributed.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    multiprocessing.spawn(work, (free,), nprocs=2)
