"""The native format: the schema of its events, how lines are written, and how they become runs again."""
