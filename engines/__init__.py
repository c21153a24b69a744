"""A decode engine and a trainer that record every step, in PyTorch and Triton.

__main__: Entry point `python -m engines`: arguments in, recording out.
arguments: Command line of the engine: options, defaults per mode, checks that need no torch.
startup_choices: Decisions before memory is allocated: model, device, storage, decoding path.
decode_run: Build a decode engine from arguments and run it.
decode_loop: Decode loop: read a prompt, decode tokens, record each step.
decoder: The decoder: embedding, layers, head, and the ops of a step in the order of the plan.
layer: One decoder layer, a method per op, and the state that ops share.
moe: Mixture of experts: one method per op, from router to combination.
rope: Rotary position embedding: tables, and frequencies scaled for long contexts.
kv_cache: Keys and values of past positions.
token_sampling: Choose the next token: greedy, temperature, top-k, top-p.
plan: Ops of a step: layer, role, shape, FLOPs and bytes as a + b·context.
fused: A decode step in few Triton kernels, launched or captured as a CUDA graph.
host: The machine around the engine: commands, timing, roofs, text.
kernels: Triton kernels of a decode step.
models: Model families: presets and readers of config.json.
processor: Compiled products for CPUs with AVX-512.
ranks: Several processes that decode one model together.
training: Training the CS336 models, step by step.
weights: Where weights come from, how they are stored, and how stored matrices multiply.
"""
