"""Which module launched each node of the CUDA graphs that a program captures, for their later replays.

The nodes are listed through the CUDA driver, as torch does while it captures; nothing is launched.
Without such a driver nothing is known.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import ctypes
import threading
import weakref
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Final

from .launch_order import LaunchOrder

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBRARY: Final = "libcuda.so.1"
_FUNCTIONS: Final = ("cuStreamGetCaptureInfo_v2", "cuGraphGetNodes", "cuGraphNodeGetType",
                  "cuGraphKernelNodeGetParams_v2", "cuFuncGetName")  # fmt: skip
_CAPTURING: Final = 1
_KERNEL, _MEMCPY, _MEMSET, _CHILD = 0, 1, 2, 4
_COPY_NAMES: Final = {_MEMCPY: "Memcpy", _MEMSET: "Memset"}
_MAX_NODES: Final = 1 << 20


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2, with spare room at its end."""

    _fields_ = (
        ("func", c_void_p), ("sizes", ctypes.c_uint * 7), ("arguments", c_void_p), ("extra", c_void_p),
        ("kern", c_void_p), ("context", c_void_p), ("room", ctypes.c_char * 64),
    )  # fmt: skip


class GraphNodes:
    """Queries the CUDA driver for the graph that a stream is captured into."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @classmethod
    def from_torch(cls, torch: Any) -> GraphNodes | None:
        """Return the queries for a torch with CUDA, or None if the driver lacks a function."""
        if getattr(getattr(torch, "version", None), "cuda", None) is None:
            return None
        try:
            driver = ctypes.CDLL(_LIBRARY)
        except OSError:
            return None
        return cls(driver) if all(hasattr(driver, name) for name in _FUNCTIONS) else None

    def count_nodes(self, stream: int) -> int | None:
        """Return the number of nodes captured on a stream so far, or None without a capture."""
        graph = self._find_graph(stream)
        size = ctypes.c_size_t(0)
        if graph is None or self._driver.cuGraphGetNodes(graph, None, byref(size)):
            return None
        return size.value if size.value < _MAX_NODES else None

    def list_names(self, stream: int) -> list[str | None] | None:
        """Return the work of each node: linker name of a kernel, `Memcpy`, `Memset`, or None for no work.

        Returns None if any node cannot be identified.
        """
        graph, count = self._find_graph(stream), self.count_nodes(stream)
        if graph is None or count is None:
            return None
        nodes, size = (c_void_p * count)(), ctypes.c_size_t(count)
        if self._driver.cuGraphGetNodes(graph, nodes, byref(size)):
            return None
        names: list[str | None] = []
        for node in nodes[: size.value]:
            kind = ctypes.c_int(-1)
            if self._driver.cuGraphNodeGetType(c_void_p(node), byref(kind)):
                return None
            name = self._read_kernel_name(node) if kind.value == _KERNEL else _COPY_NAMES.get(kind.value)
            if kind.value == _CHILD or (kind.value == _KERNEL and name is None):
                return None
            names.append(name)
        return names

    def _find_graph(self, stream: int) -> Any:
        """Return the graph that a stream is captured into, or None."""
        status, number, graph = ctypes.c_int(0), ctypes.c_uint64(0), c_void_p()
        query = self._driver.cuStreamGetCaptureInfo_v2
        failed = query(c_void_p(stream), byref(status), byref(number), byref(graph), None, None)
        return graph if not failed and status.value == _CAPTURING and graph.value else None

    def _read_kernel_name(self, node: int | None) -> str | None:
        params, name = _KernelParams(), ctypes.c_char_p()
        if self._driver.cuGraphKernelNodeGetParams_v2(c_void_p(node), byref(params)):
            return None
        function, handle = self._driver.cuFuncGetName, params.func
        if not handle and params.kern and hasattr(self._driver, "cuKernelGetName"):
            function, handle = self._driver.cuKernelGetName, params.kern
        if not handle or function(byref(name), c_void_p(handle)) or not name.value:
            return None
        return name.value.decode("utf-8", "replace")


class GraphRecord:
    """What is known of one captured graph."""

    def __init__(self) -> None:
        self.root: Callable[[], Any] = lambda: None  # weak reference to the outermost module called
        self.order: LaunchOrder | None = None


class CapturedGraphs:
    """Observes graph captures, one at a time."""

    def __init__(self, torch: Any, nodes: GraphNodes | None = None) -> None:
        self._torch = torch
        self._nodes = nodes
        self._has_searched_driver = nodes is not None
        self.is_capturing = False  # whether any thread is capturing
        self._thread: int | None = None  # the capturing thread
        self._stream = 0
        self._records: dict[int, tuple[weakref.ref[Any], GraphRecord]] = {}
        self._current: GraphRecord | None = None
        self._boundaries: list[tuple[int, str | None]] = []  # number of nodes so far, and who launched them

    def begin_capture(self, graph: Any) -> None:
        """Note that the current stream is being captured into a graph."""
        if self.is_capturing:
            return
        if not self._has_searched_driver:
            self._nodes, self._has_searched_driver = GraphNodes.from_torch(self._torch), True
        self.is_capturing, self._thread = True, threading.get_ident()
        self._current, self._boundaries = GraphRecord(), []
        self._stream = int(self._torch.cuda.current_stream().cuda_stream)
        self._records = {key: entry for key, entry in self._records.items() if entry[0]() is not None}
        self._records[id(graph)] = weakref.ref(graph), self._current

    def enter_module(self, module: Any) -> None:
        """Note the first module called in a capture: a replay counts as a call of it."""
        if self._current is not None and self._is_capture_thread() and self._current.root() is None:
            self._current.root = weakref.ref(module)

    def mark_boundary(self, owner: str | None) -> None:
        """Assign the nodes captured since the last boundary to a module."""
        count = self._nodes.count_nodes(self._stream) if self._nodes and self._is_capture_thread() else None
        if count is not None and count > (self._boundaries[-1][0] if self._boundaries else 0):
            self._boundaries.append((count, owner))

    def end_capture(self, graph: Any) -> None:
        """Store the launch order of a capture that is about to end; none if it ends on another thread."""
        if self._current is None or self.find_record(graph) is not self._current:
            return
        self.mark_boundary(None)
        names = self._nodes.list_names(self._stream) if self._nodes and self._is_capture_thread() else None
        if names is not None and self._boundaries and self._boundaries[-1][0] == len(names):
            self._current.order = _build_order(names, self._boundaries)
        self.is_capturing, self._thread, self._current = False, None, None

    def _is_capture_thread(self) -> bool:
        return self._thread == threading.get_ident()

    def find_record(self, graph: Any) -> GraphRecord | None:
        """Return the record of a graph, or None if its capture was not observed."""
        entry = self._records.get(id(graph))
        return entry[1] if entry is not None and entry[0]() is graph else None

    def forget_after_fork(self) -> None:
        """Reset in a forked child, in which no graph survives."""
        self.is_capturing, self._thread, self._current, self._records = False, None, None, {}


def _build_order(names: list[str | None], borders: list[tuple[int, str | None]]) -> LaunchOrder:
    owners: list[str | None] = []
    for end, owner in borders:
        owners += [owner] * (end - len(owners))
    return LaunchOrder(tuple((name, owner) for name, owner in zip(names, owners) if name is not None))
