"""Compare runs: which rows and steps belong together, what the samples show, and what is said about it.

A reader of `tracetui diff A B` goes from `diff` to `pairing`, to `evidence` and to `words`.

pairing/: which runs, rows and steps of two sides belong together
evidence/: statistical tests of rows and phases; how many recordings they need
words/: the sentences about a comparison
run_sides: the compared runs, which of them count as samples, and what is known about their noise
diff: compare two runs row by row: matched rows, exact parts of the change, verdicts
replaced_rows: name what ran instead of a kernel that is gone
row_diff: compare one row of a diff: its launches, its time per step, the counters meanwhile
layer_diff: compare two runs layer by layer
run_matrix: compare many runs in a table, a column per run, and how rows scale
file_groups: compare two groups of files row by row; each file is one sample
cycle_statistics: compare the cycles of two runs by function and metric, by the published definitions
explained_change: attribute the change of the step time to sampled clocks and loads
causes: report clocks, pressure and moved bytes that explain a change without a change of code
params: every numeric constant of a comparison, with the experiment that set it
"""
