import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Linear(16, 16) for _ in range(5)]
x = torch.ones(1, 16)
for _ in range(8):
    y = x
    for layer in layers:
        y = layer(y)
print(y.shape)
