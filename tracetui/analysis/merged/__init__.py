"""One answer about many files: each contributes small frames, merged in any order and finished once.

partial_results: per-file results, their commutative merge, and the tree that merges them as they arrive
merged_run: build a Run from merged sums, so that single-run views can answer; sums of rows, steps
merged_kernels: the kernel table of many files, with its spread between them
duration_sketch: percentiles of durations from counts that can be summed
"""
