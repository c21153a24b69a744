import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).eval()
with torch.no_grad():
    print([model(torch.ones(2, 3, 8, 8)).argmax().item() for _ in range(12)])
