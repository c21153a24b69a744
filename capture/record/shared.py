"""What the threads of a watched process have in common."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

from contextlib import nullcontext
from typing import Any

from .graphs import Graphs
from .op_numbers import ModuleNames
from .recording import Recording
from .windows import Windows


class Shared:
    """The recording of a process, its profiler windows, its modules' names, and whether it trains."""

    def __init__(self, torch: Any, thread: int | None = None) -> None:
        """`thread` is the one that imported torch, where it is not this one."""
        self.torch = torch
        self.recording = Recording()
        self.windows = Windows(torch, thread)
        self.graphs = Graphs(torch)
        self.names = ModuleNames()
        self.trains = False  # whether the program has an optimizer, or went backward
        self.has_optimizer = False
        # tensors are looked at without what the program has put around functions of torch
        self._tracing = getattr(getattr(torch, "_C", None), "_get_tracing_state", None) or _nothing
        self.unseen = getattr(getattr(torch, "_C", None), "DisableTorchFunction", None) or nullcontext

    def is_traced(self) -> bool:
        """Return whether torch.jit.trace writes down all that it sees, also what we would ask of a tensor."""
        return self._tracing() is not None

    def annotate(self, name: str) -> Any:
        """Return an annotation that the profiler sees, entered."""
        from torch._C._profiler import _RecordFunctionFast

        mark = _RecordFunctionFast(name)
        mark.__enter__()
        return mark


def _nothing() -> None:
    """Stand for what a torch does not have."""
