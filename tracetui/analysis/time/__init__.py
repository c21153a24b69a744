"""Accounting of time: what each step, device, gap and row took, each instant counted once.

step_table: one row per step, and kernel time per step
steady: the steady state, without warm-up and a cut last step
fitness: how fit a capture is to be compared
step_sampling: scale rows recorded in sampled steps to all steps
series: counters and memory sampled over time
gpu_time: unions of kernel intervals by class, and each instant of a step attributed to one row or gap
device_time: busy and idle time of each device per step, stray kernels
idle_gaps: idle gaps of devices and their causes
host_waits: calls in which the host waits for a device
"""
