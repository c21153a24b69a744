"""Histories of runs: a folder with one small parquet file per run, and the trend of its rows.

part: what is kept of a run: a table of its rows, steps and machine
commit: the commit of a folder
run_log: a folder or bucket of parts: add, list, remove, read
change_points: find where the level of a series of runs changes
row_trends: how the rows of a log changed, and what else did there
version_search: find the version at which a time changed, from as few runs as decide it
worktrees: check out commits beside the user's repository
part_index: parts read earlier, in few files of the cache
"""
