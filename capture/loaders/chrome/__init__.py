"""Chrome trace events: PyTorch's profiler, JAX, and whatever else writes them.

In the order of their use: `trace` and `jsonl` are the loaders; `fast_scan` or `any_json` turns the text into
a `Trace` (`tables`); `rows` turns a `Trace` into a run, with `incomplete` for events that are not complete
ones and `scopes` for the steps, layers and modules around the launch of a kernel.
"""
