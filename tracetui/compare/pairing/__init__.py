"""Which runs, rows and steps of two sides belong together.

comparability: score whether two runs may be compared, with every reason against it
row_matching: match rows of different names: linked by the user, or similar; complete truncated names
step_times: align the steps of several runs; the time of each row in each step
"""
