"""A decode step in fused kernels, and steps that run ahead of the host.

fused_step: The step: its weights, its plan, and its ops as kernel launches.
run_ahead: Queue the next step, launched or as a CUDA graph, before the token of the last one is read.
"""
