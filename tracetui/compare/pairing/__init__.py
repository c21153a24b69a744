"""Which runs, rows and steps of two sides belong together.

sample_selection: select the runs that count as samples, each recording once
comparability: score whether two runs may be compared, with every reason against it
row_matching: match rows of different names, and complete names that a source truncated
row_links: rows that the user linked
step_alignment: align the steps of several runs, without their warm-up
step_times: the time of each row in each step, dense for one run and sparse for a pair
"""
