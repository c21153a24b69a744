"""The terminal: what it can do, how it is driven and given back, and its colours."""
