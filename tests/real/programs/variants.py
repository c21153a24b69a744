"""Steps of small programs in many variants, with what one step took by the program's own clocks.

python variants.py TASK [OPTIONS]: every option is one known difference between two runs.
"""

import argparse
import json
import statistics
import threading
import time
from contextlib import ExitStack, nullcontext

import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("images", "text", "sequence", "generate"))
    for name, default in (("batch", 2), ("length", 64), ("steps", 40), ("threads", 1), ("micro", 1),
                          ("beams", 1), ("vocab", 2048), ("interop", 0)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("channels-last", "autocast", "grad", "train", "quant", "sample", "spin", "lock", "inference",
                 "pad-left", "no-cache", "input-last"):  # fmt: skip
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--attn", default="sdpa")
    parser.add_argument("--precision", default="")
    parser.add_argument("--compile", default="")
    parser.add_argument("--profile", help="torch.profiler trace of the steps")
    return parser.parse_args()


class Sequence(nn.Module):
    """An LSTM over tokens with a head."""

    def __init__(self, vocab):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(vocab, 192), nn.LSTM(192, 192, 2, batch_first=True)
        self.head = nn.Linear(192, vocab)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0])


def build_images():
    layers, width = [], 3
    for out in (32, 64, 96):
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100))


def build_model(args):
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    if args.task == "images":
        model = build_images()
    elif args.task == "sequence":
        model = Sequence(args.vocab)
    elif args.task == "text":
        config = BertConfig(vocab_size=args.vocab, **sizes)
        config._attn_implementation = args.attn
        model = BertModel(config)
    else:
        config = LlamaConfig(vocab_size=args.vocab, **sizes, bos_token_id=1, eos_token_id=None)
        config._attn_implementation = args.attn
        model = LlamaForCausalLM(config)
    model = model.train() if args.train else model.eval()
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if args.quant:
        kinds = {nn.Linear, nn.LSTM}
        model = torch.ao.quantization.quantize_dynamic(model, kinds, dtype=torch.qint8)
    if args.compile:
        model.forward = torch.compile(model.forward, mode=args.compile)
    return model


def make_inputs(args):
    if args.task == "images":
        images = torch.randn(args.batch, 3, 96, 96)
        last = args.channels_last or args.input_last
        return (images.contiguous(memory_format=torch.channels_last) if last else images,), {}
    ids = torch.randint(3, args.vocab, (args.batch, args.length))
    if args.task != "text":
        return (ids,), {}
    mask = torch.ones_like(ids)
    mask[:, : args.length // 4] = 0  # padded on the left, or on the right
    return (ids,), {"attention_mask": mask if args.pad_left else mask.flip(1)}


def start_disturbance(args, lock):
    """Let a thread of Python compute, or take the lock now and then, for as long as the program runs."""

    def spin():
        while True:
            sum(range(1000))

    def hold():
        while True:
            with lock:
                time.sleep(0.004)

    for is_on, target in ((args.spin, spin), (args.lock, hold)):
        if is_on:
            threading.Thread(target=target, daemon=True).start()


def run_steps(model, args, count, profiler):
    lock, times = threading.Lock(), []
    start_disturbance(args, lock)
    inputs, named = make_inputs(args)
    for _ in range(count):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for part in range(args.micro):
            chunk = [x.chunk(args.micro)[part] for x in inputs]
            with lock:
                pass
            model(*chunk, **named)
        times.append((time.perf_counter() - begin, time.process_time() - cpu_begin))
        if profiler:
            profiler.step()
    return times


def generate(model, args, count, profiler):
    options = {"do_sample": False}
    if args.sample:
        options = {"do_sample": True, "temperature": 0.8, "top_k": 40, "top_p": 0.9}
    (ids,), _ = make_inputs(args)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    model.generate(ids, max_new_tokens=count, num_beams=args.beams, use_cache=not args.no_cache,
                   pad_token_id=0, **options)  # fmt: skip
    return [((time.perf_counter() - begin) / count, (time.process_time() - cpu_begin) / count)]


def main():
    args = read_arguments()
    torch.set_num_threads(args.threads)
    if args.interop:
        torch.set_num_interop_threads(args.interop)
    if args.precision:
        torch.set_float32_matmul_precision(args.precision)
    model, run = build_model(args), generate if args.task == "generate" else run_steps
    with ExitStack() as stack:
        if not args.grad:
            stack.enter_context(torch.inference_mode() if args.inference else torch.no_grad())
        if args.autocast:
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        if args.profile or args.compile:
            run(model, argparse.Namespace(**{**vars(args), "spin": False, "lock": False}), 3, None)
        profiler = torch.profiler.profile(record_shapes=True) if args.profile else None
        with profiler or nullcontext():
            times = run(model, args, args.steps, profiler)
    if args.profile:
        profiler.export_chrome_trace(args.profile)
    medians = (round(1e9 * statistics.median(each)) for each in zip(*times, strict=True))
    print(json.dumps(dict(zip(("step_ns", "cpu_ns"), medians, strict=True))))


if __name__ == "__main__":
    main()
