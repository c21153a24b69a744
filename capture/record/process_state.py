"""State shared by the threads of a recorded process."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

from contextlib import nullcontext
from typing import Any

from . import process_notes
from .captured_graphs import CapturedGraphs
from .op_ids import ModuleNames
from .process_recording import ProcessRecording
from .window_gate import WindowGate


class ProcessState:
    """The recording of a process, its profiler windows, module names, and whether it trains."""

    def __init__(self, torch: Any, thread: int | None = None) -> None:
        """`thread` is the thread that imported torch, if it is not the current one."""
        self.torch = torch
        self.recording = ProcessRecording()
        self.windows = WindowGate(torch, thread)
        self.graphs = CapturedGraphs(torch)
        self.names = ModuleNames()
        self.detail = process_notes.read_setting(process_notes.DETAIL_VARIABLE) or "full"
        self.is_training = False  # whether the program has an optimizer or runs backward
        self.has_optimizer = False
        # inspect tensors without the program's own overrides of torch functions
        inner = getattr(torch, "_C", None)
        self.find_tracing = getattr(inner, "_get_tracing_state", None) or (lambda: None)
        # whether a mode of the program would see an inspection of tensors; True if that is not known
        self.has_function_mode = getattr(inner, "_is_torch_function_mode_enabled", None) or (lambda: True)
        self.tensor_type = getattr(torch, "Tensor", None)
        self.is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or bool
        self.bypass_torch_functions = getattr(inner, "DisableTorchFunction", None) or nullcontext

    def is_traced(self) -> bool:
        """Return whether torch.jit.trace is running: it would record our inspection of tensors, too."""
        return self.find_tracing() is not None

    def annotate(self, name: str) -> Any:
        """Return an entered annotation, visible to the profiler."""
        from torch._C._profiler import _RecordFunctionFast

        annotation = _RecordFunctionFast(name)
        annotation.__enter__()
        return annotation
