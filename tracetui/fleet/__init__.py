"""Answers about many files: each contributes a small part, here or on a cluster, and the parts are merged."""
