"""Which runs, rows and steps of two sides belong together.

comparability: score whether two runs may be compared, with every reason against it
equal_work: find in what the work of two runs differs: batch, context, number format …
run_work: read of one run what its steps compute, and how
row_matching: match rows of different names: linked by the user, or similar; complete truncated names
step_times: align the steps of several runs; the time of each row in each step
"""
