import torch
from _models import Decoder, seeded
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    model = seeded(Decoder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randint(0, 50, (24, 8)))
    for (ids,) in DataLoader(data, batch_size=3, num_workers=2):
        model(ids).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("done")
