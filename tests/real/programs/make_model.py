"""Save a small random model, whose tokens are the words w3, w4 …: make_model.py FOLDER [MODEL_TYPE]."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

WORDS = 8192
folder, kind = sys.argv[1], (sys.argv[2:] or ["qwen3"])[0]
experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256} if "moe" in kind else {}
torch.manual_seed(0)
config = CONFIG_MAPPING[kind](
    vocab_size=WORDS, hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=4096, bos_token_id=1, eos_token_id=2,
    tie_word_embeddings=True, **experts,
)  # fmt: skip
AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
names = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(3, WORDS))]
words = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokens = PreTrainedTokenizerFast(
    tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
)
tokens.save_pretrained(folder)
