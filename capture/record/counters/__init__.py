"""Counters of the machine, sampled next to a recording by processes of their own.

sampler: sampler process for CPU, memory, pressure and the recorded process; starts the others
gpu_counters: process that reads GPUs through NVML
core_speed: the speed of each core, measured with a fixed loop
"""
