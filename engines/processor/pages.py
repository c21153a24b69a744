"""Weights in large pages of memory, in which a processor finds its way faster than in small ones.

They are made in small pages and gathered while the engine runs. Asked for large ones at once, the kernel
takes free memory that lies together, which a hypervisor is likely to have taken back, and must first get it
again: on such a machine the first step of gemma-3-1b came after 3.5 s in place of 1.6.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import torch

PAGE: Final = 2 << 20
_COLLAPSE: Final = 25  # MADV_COLLAPSE, of Linux 6.1 and later


def gather(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Have the kernel put what tensors lie in into large pages: one at each turn.

    A page whose memory the kernel cannot gather stays as it is.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    advise = ctypes.CDLL(None).madvise
    for page in pages_of(tensors):
        advise(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), _COLLAPSE)
        yield


def pages_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Return the addresses of all large pages in which a part of these tensors lies, each once, in order."""
    pages: set[int] = set()
    for tensor in tensors:
        begin = tensor.data_ptr()
        pages.update(range(begin // PAGE * PAGE, begin + tensor.nbytes, PAGE))
    return sorted(pages)
