"""Work in background threads: read and follow files, restore old steps.

- feed: the protocol of what the screen reads from, and the progress of reading
- file_set_feed: a feed of many files that are asked where they are
- follow_file: follow a growing file and the engine that writes it; schedule redraws
- read_files: read files once, and the log; list and open saved baselines and recordings
- restore_steps: read steps again that a growing run has compacted
"""
