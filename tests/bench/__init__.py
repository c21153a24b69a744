"""Benchmarks, in a process like the program's: its memory is kept from one question to the next."""

import gc

from tracetui.cli import COLLECT
from tracetui.threads import keep_memory

gc.set_threshold(*COLLECT)
keep_memory()
