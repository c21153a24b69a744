"""Answers about many files: each contributes a small result, here or on a cluster, and these are merged.

file_job: one file of a query: compute its contribution, on the machine that has it
executors/: who computes: processes of this machine, Dask or Ray
ask_files: ask many files one question and wait for the answer
running_query: ask in a thread, with partial answers at any time
rank_hosts: on which host and switch each rank ran
"""

from tracetui import package_paths

package_paths.import_capture()  # a worker of a cluster imports this package first, without our command
