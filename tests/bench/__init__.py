"""Benchmarks; their tables keep memory from one question to the next, as the program's do."""

from tracetui.threads import keep_memory

keep_memory()
