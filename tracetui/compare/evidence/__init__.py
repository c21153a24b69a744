"""What the samples of a comparison show: tests of rows and phases, and how many recordings they need.

row_evidence: judge each row by its runs, steps or launches
phase_totals: judge each phase: step time, kernels and the time between them
pair_test: test one run per side: paired steps against the run-to-run noise
repeat_test: test repeated runs per side: one value per run and row; the noise floor of identical runs
step_contrast: each row relative to the others of its step, and how it follows their pace from run to run
cpu_contention: find steps in which other programs used the CPU that the run needed
sample_size: required recordings, detectable change, and alpha spending over interim looks
"""
