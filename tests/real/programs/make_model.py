"""Save a small Qwen3 of random weights, whose tokens are the words w3, w4 …: make_model.py FOLDER."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

WORDS = 8192
torch.manual_seed(0)
config = Qwen3Config(
    vocab_size=WORDS, hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=4096, bos_token_id=1, eos_token_id=2,
    tie_word_embeddings=True,
)  # fmt: skip
Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
names = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(3, WORDS))]
words = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokens = PreTrainedTokenizerFast(
    tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
)
tokens.save_pretrained(sys.argv[1])
