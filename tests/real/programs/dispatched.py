"""Two sequences of 16 tokens of a model to which accelerate, imported first, has added hooks."""

from accelerate import Accelerator, dispatch_model  # isort: skip
import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
torch.set_num_threads(1)
config = LlamaConfig(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()
model = dispatch_model(model, {"": "cpu"}, force_hooks=True)
model = Accelerator(cpu=True).prepare_model(model, evaluation_mode=True)
ids = torch.arange(20).reshape(2, 10) + 3
made = model.generate(ids, max_new_tokens=16, min_new_tokens=16, do_sample=False)
print(made.tolist())
raise SystemExit(7)
