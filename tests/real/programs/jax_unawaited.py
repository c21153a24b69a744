"""Six annotated steps of JAX, each of which starts a computation: python jax_unawaited.py FOLDER EVERY.

Every step that EVERY divides waits for its result, the others return at once (0: none waits). Print the
seconds of the steps by the program's own clock.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp


@jax.jit
def advance(x, weights):
    return jax.lax.scan(lambda x, weight: (jnp.tanh(x @ weight), None), x, weights)[0]


every, times = int(sys.argv[2]), []
weights = jax.random.normal(jax.random.PRNGKey(0), (8, 512, 512)) * 0.05
x = jnp.ones((256, 512))
advance(x, weights).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    for number in range(1, 7):
        start = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            x = advance(x, weights)
            if every and number % every == 0:
                x.block_until_ready()
        times.append(time.perf_counter() - start)
    x.block_until_ready()
print(json.dumps(times))
