"""Watches from beside, in a process of its own: what profilers drop into a folder, what a server tells."""
