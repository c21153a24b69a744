"""Chrome trace events: PyTorch's profiler, JAX, and whatever else writes them."""
