import torch
from _models import Decoder, seeded

model = seeded(Decoder)
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
for _ in range(10):
    model(torch.randint(0, 50, (2, 8))).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
print(schedule.get_last_lr())
