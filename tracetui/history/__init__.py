"""Histories of runs: a folder with one small parquet file per run, and the trend of its rows.

part: what is kept of a run: a table of its rows, steps and machine
git: ask git for commits, and check them out beside the user's repository
run_log: a folder or bucket of parts: add, list, remove, read
change_points: find where the level of a series of runs changes
row_trends: how the rows of a log changed, and what else did there
version_search: find the version at which a time changed, from as few runs as decide it
part_index: parts read earlier, in few files of the cache
"""
