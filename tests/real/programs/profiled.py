"""Profile vLLM with shapes: profiled.py FOLDER MODEL_TYPE, where a random model of that type answers prompts.

The trace is in FOLDER/traces, the model in FOLDER/model.
"""

import os
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SIZES = {
    "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
LENGTHS = (96, 160)
TOKENS = 8


def save_model(folder: Path, kind: str) -> None:
    sizes = SIZES | (EXPERTS if "moe" in kind else {})
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**sizes, max_position_embeddings=1024, tie_word_embeddings=False)
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)


def answer_prompts(folder: Path, traces: Path) -> None:
    from vllm import LLM, SamplingParams

    profiler = {
        "profiler": "torch", "torch_profiler_dir": str(traces), "torch_profiler_with_stack": False,
        "torch_profiler_record_shapes": True, "detailed_trace_annotation": True,
    }  # fmt: skip
    llm = LLM(
        str(folder), dtype="bfloat16", enforce_eager=True, max_model_len=1024, skip_tokenizer_init=True,
        profiler_config=profiler, enable_prefix_caching=False,
    )  # fmt: skip
    prompts = [{"prompt_token_ids": list(range(10, 10 + length))} for length in LENGTHS]
    sampling = SamplingParams(max_tokens=TOKENS, ignore_eos=True, temperature=0, detokenize=False)
    llm.generate(prompts, sampling, use_tqdm=False)
    llm.start_profile()
    llm.generate(prompts, sampling, use_tqdm=False)
    llm.stop_profile()


if __name__ == "__main__":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    root, kind = Path(sys.argv[1]), sys.argv[2]
    save_model(root / "model", kind)
    answer_prompts(root / "model", root / "traces")
