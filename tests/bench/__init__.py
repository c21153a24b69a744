"""Benchmarks, in a process like the program's: its memory is kept from one question to the next."""

import gc

from tracetui.process_tuning import USUAL_THRESHOLDS, retain_freed_memory

gc.set_threshold(*USUAL_THRESHOLDS)
retain_freed_memory()
