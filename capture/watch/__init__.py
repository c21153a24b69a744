"""Record a trace folder or a server from a separate process: `python -m capture.watch`.

trace_folder: find the complete files in a folder that a profiler writes to
folder_watcher: write each complete trace of a folder as a window
server_watcher: follow a server: health, metrics and profiler windows
server_windows: profile a server periodically, in a thread
server_profile: start and stop one profile of a server, within a time budget
server_metrics: rates and quantiles from successive metric readings
load_generator: ask a server as several clients do, and log each token
prometheus: parse Prometheus metrics
http_client: HTTP client for the one server that the user named
watch_recording: write windows, metrics and messages on one clock
servers: the supported kinds of servers
"""
