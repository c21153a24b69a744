"""Sixteen tokens of two texts by a T5 of random weights: `generate` calls the encoder alone first."""

from transformers import T5Config, T5ForConditionalGeneration, set_seed  # isort: skip
import torch

set_seed(0)
torch.set_num_threads(1)
config = T5Config(
    vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=3, num_heads=4, decoder_start_token_id=0
)
model = T5ForConditionalGeneration(config).eval()
for start in (3, 40):
    ids = torch.arange(start, start + 12).reshape(1, 12)
    made = model.generate(ids, max_new_tokens=16, min_new_tokens=16, do_sample=False)
    print(made.tolist())
