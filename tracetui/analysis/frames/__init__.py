"""How tables are computed: what every table of `analysis` builds on.

selection: rows a Look asks for; lenses, ranks and phases of a run
name_filter: regular expressions and terms that rows must match
display_names: short names of kernels, chosen among all names of the runs
run_memo: values cached per run, and per chunk of a growing run
codes: group, look up and sum rows by codes and segments, faster than polars' own joins
time_axis: sort rows by group and start, place groups on one axis
nesting: enclosing scope of each row, paths, rows of a lane
ragged: numpy arrays of rows of unequal length, columns as dense codes
statistics: paired tests, intervals and corrections under autocorrelation
rank_permutation: which rank is late, and what would have been found
line_fit: robust lines, outliers and the law of growth
even_fit: the same after taking out what the whole step did
"""
