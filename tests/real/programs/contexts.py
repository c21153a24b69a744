"""Generate in a way whose contexts cannot be counted: `contexts.py WAY` prints the tokens."""

import sys

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
torch.set_num_threads(1)
small = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(**small, num_hidden_layers=3)).eval()
options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
ids = torch.arange(5, 15)[None]


def decode(logits: torch.Tensor, cache: DynamicCache, count: int) -> list[int]:
    """Return the tokens that follow, one call for each but the first."""
    made = [int(logits[0, -1].argmax())]
    for _ in range(count):
        made.append(int(model(torch.tensor([made[-1:]]), past_key_values=cache).logits[0, -1].argmax()))
    return made


with torch.no_grad():
    way = sys.argv[1]
    if way == "chunks":
        cache = DynamicCache()
        for chunk in torch.arange(48)[None].split(16, dim=1):
            logits = model(chunk, past_key_values=cache).logits
        print(decode(logits, cache, 4))
    elif way == "interleaved":
        caches = [DynamicCache(), DynamicCache()]
        made = [model(ids[:, : 8 + at], past_key_values=cache).logits for at, cache in enumerate(caches)]
        for _ in range(4):
            token = torch.ones(1, 1, dtype=torch.long)
            made = [model(token, past_key_values=cache).logits for cache in caches]
        print([logits.argmax().item() for logits in made])
    else:
        if way == "assisted":
            draft = LlamaForCausalLM(LlamaConfig(**small, num_hidden_layers=1)).eval()
            shared = {name: each for name, each in model.state_dict().items() if name in draft.state_dict()}
            draft.load_state_dict(shared)
            options["assistant_model"] = draft
        elif way == "lookup":
            options["prompt_lookup_num_tokens"] = 3
        elif way == "beams":
            options["num_beams"] = 4
        elif way == "static":
            options["cache_implementation"] = "static"
        print(model.generate(ids, **options)[0, 10:].tolist())
