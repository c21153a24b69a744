import torch
from _models import Decoder, generate, seeded

model, seen = seeded(Decoder).eval(), []
for layer in model.layers:
    layer.register_forward_pre_hook(lambda module, args: seen.append("before"))
    layer.register_forward_hook(lambda module, args, out: seen.append("after"))
torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: seen.append("any"))
generate(model, 5)
print(len(seen), seen.count("any"))
