"""What happened: how an execution is recorded, stored and loaded, as a Run of one event frame.

the data:
  run: Run, its metadata and its validated event frame; LiveRun, a snapshot of a growing run
  launch_archive: compressed single launches of compacted steps
  import_log: records read, repaired and dropped, with a notice per cause
  errors: errors whose message is shown to the user

loading:
  load_runs: load files and folders as runs, and select one by number or name
  source: an input file, unpacked, with its head for sniffing
  files/: addresses, remote files, private folders, atomic writes
  cache: parsed inputs on disk
  loaders/: one module per format that is read
  native/: our own format, which can be read while it is written
  graphs/: CUDA-graph captures, and the replays that they explain
  model_work/: work of kernels without shapes, from the config.json of their model
  classify/: layer, op, category and phase from names
  infer_structure: layers and steps from repetition, for sources without them
  merge_ranks: tracks to ranks, and one run per rank merged into one
  step_ends: where steps end, and the steps of graph launches
  devices: the devices of a run, and a run restricted to one
  unknown_input: explain an input that no loader accepts
  export_runs: export runs as native lines, Parquet, CSV or a Chrome trace

recording:
  record/: what runs in or next to a recorded program
  watch/: record a trace folder or a server from a separate process

shared helpers:
  device_roofs: peak bandwidth and compute rate of devices
  nvidia: driver version and GPU names without touching a GPU
  tasks: run polars computations on threads, cancel long work, announce it
  interval_nesting: what of nested intervals each takes itself
  dense_lookup: look up integer keys by index tables instead of hashing
  extensions: load optional C extensions
  build_part: compile a C extension
  clean_text: sanitise text from outside
  stderr_mute: mute native libraries on stderr
  plugins: loaders, views and model families registered by other packages
"""
