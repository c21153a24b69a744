"""Prompts of 12, 20, 8 and 16 tokens and 24 new tokens each, by vLLM without a server: offline.py MODEL."""

import sys

from vllm import LLM, SamplingParams

if __name__ == "__main__":
    llm = LLM(sys.argv[1], dtype="bfloat16", enforce_eager=True, max_model_len=512)
    prompts = [{"prompt_token_ids": list(range(10, 10 + count))} for count in (12, 20, 8, 16)]
    sampling = SamplingParams(max_tokens=24, ignore_eos=True, temperature=0)
    print([made.outputs[0].token_ids for made in llm.generate(prompts, sampling, use_tqdm=False)])
    sys.exit(7)
