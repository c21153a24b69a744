"""A decode step in fused kernels: its weights, its ops and their rows, and the steps that run ahead."""
