"""The nodes of a graph that is being captured, as the driver tells them: questions only, nothing is launched.

torch asks the same while it captures. Where the driver is not that of CUDA, or lacks a function, nothing is
known.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import ctypes
from typing import Any, Final

_LIBRARY: Final = "libcuda.so.1"
_NEEDED: Final = ("cuStreamGetCaptureInfo_v2", "cuGraphGetNodes", "cuGraphNodeGetType",
                  "cuGraphKernelNodeGetParams_v2", "cuFuncGetName")  # fmt: skip
_CAPTURING: Final = 1
_KERNEL, _MEMCPY, _MEMSET, _CHILD = 0, 1, 2, 4
_WORK: Final = {_MEMCPY: "Memcpy", _MEMSET: "Memset"}
_MOST: Final = 1 << 20


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2, with room behind it."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("sizes", ctypes.c_uint * 7),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("room", ctypes.c_char * 64),
    )


class GraphNodes:
    """Asks a driver of the graph that a stream is captured into."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @classmethod
    def of_torch(cls, torch: Any) -> GraphNodes | None:
        """Return the driver that a torch for CUDA works with; None where that lacks what is needed."""
        if getattr(getattr(torch, "version", None), "cuda", None) is None:
            return None
        try:
            driver = ctypes.CDLL(_LIBRARY)
        except OSError:
            return None
        return cls(driver) if all(hasattr(driver, name) for name in _NEEDED) else None

    def count(self, stream: int) -> int | None:
        """Return how many nodes the graph of a stream has by now; None where it is not captured."""
        graph = self._graph(stream)
        size = ctypes.c_size_t(0)
        if graph is None or self._driver.cuGraphGetNodes(graph, None, ctypes.byref(size)):
            return None
        return size.value if size.value < _MOST else None

    def names(self, stream: int) -> list[str | None] | None:
        """Return for each node what a replay runs for it: the name of a kernel, as its linker knows it, of a
        copy or a fill; None for a node that is no such work. None for all where one cannot be known.
        """
        graph, count = self._graph(stream), self.count(stream)
        if graph is None or count is None:
            return None
        nodes, size = (ctypes.c_void_p * count)(), ctypes.c_size_t(count)
        if self._driver.cuGraphGetNodes(graph, nodes, ctypes.byref(size)):
            return None
        names: list[str | None] = []
        for node in nodes[: size.value]:
            kind = ctypes.c_int(-1)
            if self._driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)):
                return None
            name = self._kernel_name(node) if kind.value == _KERNEL else _WORK.get(kind.value)
            if kind.value == _CHILD or (kind.value == _KERNEL and name is None):
                return None
            names.append(name)
        return names

    def _graph(self, stream: int) -> Any:
        """Return the graph that a stream is captured into; None where it is not."""
        status, number, graph = ctypes.c_int(0), ctypes.c_uint64(0), ctypes.c_void_p()
        failed = self._driver.cuStreamGetCaptureInfo_v2(
            ctypes.c_void_p(stream),
            ctypes.byref(status),
            ctypes.byref(number),
            ctypes.byref(graph),
            None,
            None,
        )
        return graph if not failed and status.value == _CAPTURING and graph.value else None

    def _kernel_name(self, node: int | None) -> str | None:
        params, name = _KernelParams(), ctypes.c_char_p()
        if self._driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(params)):
            return None
        asked, subject = self._driver.cuFuncGetName, params.func
        if not subject and params.kern and hasattr(self._driver, "cuKernelGetName"):
            asked, subject = self._driver.cuKernelGetName, params.kern
        if not subject or asked(ctypes.byref(name), ctypes.c_void_p(subject)) or not name.value:
            return None
        return name.value.decode("utf-8", "replace")
