"""Chrome trace events: PyTorch's profiler, JAX, and whatever else writes them.

The loaders, and how they read:

trace: load trace documents, an object with `traceEvents` or a bare list
jsonl: load trace events written as JSON lines
readers: read with the C scanner if it supports the file, else with the lenient reader
compiled_reader: read plain JSON with the C scanner, on several threads
lenient_reader: read any JSON layout, repairing a damaged document event by event
trace_model: `Trace`, the common output of both readers, which other loaders build, too

From a `Trace` to a Run:

trace_to_run: kinds, lenses, tracks, steps, and attribution of kernels to their launch
trace_metadata: what the header reports: producer, devices, driver, ranks, base of the clock
trace_steps: find the steps: engine annotations, profiler steps, numbered ranges, graph launches
track_names: name the track of each thread, stream and lane inside a kernel
partial_events: convert begin/end pairs, counters, instants and memory events
host_leaves: select the host ops that represent the work if there is no device
launch_context: add host call, configuration, scopes and line of Python of each launch
operator_links: link kernels to operators by External id: shape, FLOPs, bytes, op
"""
