"""Decode with a model of transformers by hand, and print what one step took by the program's own clocks.

Every option is one known difference between two runs: `python -m tests.real.pairs` makes pairs of them.
"""

import argparse
import json
import os
import statistics
import time
from contextlib import nullcontext

import torch
from torch import distributed
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, StaticCache


def read_arguments():
    parser = argparse.ArgumentParser()
    for name, default in (("batch", 1), ("prompt", 48), ("steps", 64), ("threads", 1), ("layers", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--model", choices=("llama", "gpt2"), default="llama")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--attn", default="sdpa")
    parser.add_argument("--cache", choices=("dynamic", "static"), default="dynamic")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--quant", action="store_true")
    parser.add_argument(
        "--slow", type=float, default=1.0, help="factor on the time of the last product of the MLP"
    )
    parser.add_argument("--sleep", type=float, default=None, help="ms before an all_reduce after each step")
    parser.add_argument("--profile", help="torch.profiler trace of the steps")
    return parser.parse_args()


def make_slow(module, factor):
    """Make each call of a module take that many times as long."""
    forward = module.forward

    def forward_slowly(*args, **kwargs):
        start = time.perf_counter()
        result = forward(*args, **kwargs)
        end = start + factor * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
        return result

    module.forward = forward_slowly


def build_model(args):
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    if args.model == "gpt2":
        config = GPT2Config(
            vocab_size=2048, n_embd=args.width, n_layer=args.layers, n_head=8, n_positions=8192
        )
    else:
        config = LlamaConfig(
            vocab_size=2048, hidden_size=args.width, intermediate_size=2 * args.width,
            num_hidden_layers=args.layers, num_attention_heads=8, num_key_value_heads=8,
            max_position_embeddings=8192,
        )  # fmt: skip
    config._attn_implementation = args.attn
    kind = GPT2LMHeadModel if args.model == "gpt2" else LlamaForCausalLM
    model = kind(config).to(getattr(torch, args.dtype)).eval()
    if args.quant:
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    if args.slow > 1:
        for layer in model.transformer.h if args.model == "gpt2" else model.model.layers:
            make_slow(layer.mlp.c_proj if args.model == "gpt2" else layer.mlp.down_proj, args.slow)
    if args.compile:
        model.forward = torch.compile(model.forward, dynamic=True)
    return model


def decode(model, args, profiler):
    """Prefill and decode; return the seconds of each decode step, and those of the CPU."""
    cache = None
    if args.cache == "static":
        cache = StaticCache(config=model.config, max_cache_len=args.prompt + args.steps + 1)
    ids, times = torch.randint(0, 2048, (args.batch, args.prompt)), []
    for step in range(args.steps + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        with torch.profiler.record_function("decode" if step else "prefill"):
            out = model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache, ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
            if args.sleep is not None:
                time.sleep(args.sleep / 1000 if int(os.environ.get("RANK", "0")) else 0)
                distributed.all_reduce(torch.ones(4096))
        times.append((time.perf_counter() - start, time.process_time() - cpu_start))
        if profiler:
            profiler.step()
    return times[1:]


@torch.no_grad()
def main():
    args = read_arguments()
    if args.sleep is not None:
        distributed.init_process_group("gloo")
    model = build_model(args)
    if args.profile or args.compile:
        decode(model, argparse.Namespace(**{**vars(args), "steps": 4, "sleep": None}), None)  # warm-up
    profiler = torch.profiler.profile(record_shapes=True) if args.profile else None
    with profiler or nullcontext():
        times = decode(model, args, profiler)
    if int(os.environ.get("RANK", "0")) == 0:
        if args.profile:
            profiler.export_chrome_trace(args.profile)
        medians = (round(1e9 * statistics.median(each)) for each in zip(*times, strict=True))
        print(json.dumps(dict(zip(("step_ns", "cpu_ns"), medians, strict=True))))


if __name__ == "__main__":
    main()
