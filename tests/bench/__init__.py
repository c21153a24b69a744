"""Benchmarks, in a process like the program's: its memory is kept from one question to the next."""

import gc

from tracetui.garbage import USUAL
from tracetui.threads import keep_memory

gc.set_threshold(*USUAL)
keep_memory()
