"""Chrome trace events: PyTorch's profiler, JAX, and whatever else writes them.

The loaders, and how they read:

trace: load trace documents with the C scanner, else with the lenient reader
jsonl: load trace events written as JSON lines
compiled_reader: read plain JSON with the C scanner, on several threads
lenient_reader: read any JSON layout, repairing a damaged document event by event
trace_model: `Trace`, the common output of both readers, which other loaders build, too

From a `Trace` to a Run:

trace_to_run: kinds, lenses, tracks, steps, and attribution of kernels to their launch
trace_metadata: what the header reports, and the names of processes, threads, streams and lanes
trace_steps: find the steps: engine annotations, profiler steps, numbered ranges, graph launches
host_leaves: find what represents the work if there is no device: thunks, ops, self times
compiled_origins: find the lines of the program behind compiled code, by files of torch.compile
launch_context: add host call, configuration, scopes, line of Python and operator of each launch
"""
