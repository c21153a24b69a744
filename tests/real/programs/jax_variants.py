"""Ten numbered steps of a small network of JAX in variants, with what one step took by the program's clock.

python jax_variants.py FOLDER [OPTIONS]: the profile is written below FOLDER.
"""

import argparse
import json
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("folder")
for name, default in (("layers", 4), ("batch", 32), ("width", 256)):
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--dtype", default="float32")
for name in ("unroll", "donate"):
    parser.add_argument(f"--{name}", action="store_true")
args = parser.parse_args()


def apply_layer(x, weights):
    up, down = weights
    return x + jnp.tanh(x @ up) @ down, None


@partial(jax.jit, donate_argnums=(1,) if args.donate else ())
def advance(weights, x):
    if args.unroll:
        for layer in range(args.layers):
            x, _ = apply_layer(x, [each[layer] for each in weights])
        return x
    return jax.lax.scan(apply_layer, x, weights)[0]


keys = jax.random.split(jax.random.PRNGKey(0), 2)
shapes = (args.layers, args.width, 2 * args.width), (args.layers, 2 * args.width, args.width)
weights = [(0.02 * jax.random.normal(k, s)).astype(args.dtype) for k, s in zip(keys, shapes, strict=True)]
x, times = jnp.ones((args.batch, args.width), args.dtype), []
x = advance(weights, x).block_until_ready()
with jax.profiler.trace(args.folder):
    for number in range(10):
        start, cpu_start = time.perf_counter(), time.process_time()
        with jax.profiler.StepTraceAnnotation("forward", step_num=number):
            x = advance(weights, x).block_until_ready()
        times.append((time.perf_counter() - start, time.process_time() - cpu_start))
medians = (round(1e9 * statistics.median(each)) for each in zip(*times, strict=True))
print(json.dumps(dict(zip(("step_ns", "cpu_ns"), medians, strict=True))))
