"""Five numbered steps of JAX with a loop of known length, a loop until a value, a branch and a sort.

python jax_steps.py FOLDER: print the seconds of each step by the program's own clock.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp


@jax.jit
def advance(x, weights):
    def apply_layer(state, weight):
        hidden = jnp.tanh(state @ weight)
        hidden = hidden / jnp.linalg.norm(hidden, axis=-1, keepdims=True)
        return state + hidden, hidden.sum()

    x, _ = jax.lax.scan(apply_layer, x, weights)
    x = jax.lax.while_loop(lambda state: (state * state).sum() < 1e6, lambda state: state * 1.5, x)
    return jax.lax.cond(x.sum() > 0, lambda state: jnp.sort(state, -1), lambda state: -state, x)


weights = jax.random.normal(jax.random.PRNGKey(0), (6, 256, 256)) * 0.1
x, times = jnp.ones((64, 256)), []
advance(x, weights).block_until_ready()
with jax.profiler.trace(sys.argv[1], create_perfetto_trace=True):
    for number in range(5):
        start = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            advance(x + number, weights).block_until_ready()
        times.append(time.perf_counter() - start)
print(json.dumps(times))
