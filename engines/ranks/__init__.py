"""Several processes that decode one model together.

rank_launcher: Start ranks, and report why one failed.
tensor_parallel: The share of each weight per rank, and the sums of their products.
"""
