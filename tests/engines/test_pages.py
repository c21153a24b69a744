"""Weights in large pages: which ones, and that nothing else about them changes."""

import ctypes
import gc
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engines import processor
from engines.kv_cache import allocate_caches
from engines.models.catalogue import PRESETS
from engines.processor import CpuProduct, huge_pages

MB = 1 << 20
compiled = pytest.mark.skipif(not processor.list_kinds(), reason="nothing is compiled for this processor")


def at(address: int, size: int) -> torch.Tensor:
    return SimpleNamespace(data_ptr=lambda: address, nbytes=size)  # type: ignore[return-value]


def test_the_pages_are_all_that_hold_a_part_each_once() -> None:
    whole, within, across = at(4 * MB, 2 * MB), at(5 * MB, 16), at(8 * MB - 1, 2 * MB + 2)
    assert huge_pages.list_pages([across, whole, within]) == [4 * MB, 6 * MB, 8 * MB, 10 * MB]
    assert huge_pages.list_pages([]) == []


def test_a_kernel_is_asked_page_by_page_and_may_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []

    def refuse(address: ctypes.c_void_p, size: ctypes.c_size_t, advice: int) -> int:
        asked.append((address.value or 0, size.value, advice))
        return -1

    monkeypatch.setattr(huge_pages.sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(madvise=refuse))
    turns = huge_pages.gather_into_pages([at(4 * MB, 3 * MB), at(20 * MB, 2 * MB)])
    assert asked == [], "nothing before the first turn"
    next(turns)
    assert asked == [(4 * MB, 2 * MB, 25)]
    assert len(list(turns)) == 2 and [a for a, *_ in asked] == [4 * MB, 6 * MB, 20 * MB]


def test_elsewhere_than_on_linux_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages.sys, "platform", "darwin")
    assert list(huge_pages.gather_into_pages([torch.ones(1000)])) == []


@compiled
def test_products_are_gathered_while_they_live() -> None:
    codes, scales = torch.ones(4, 32, dtype=torch.int8), torch.ones(4, 1, dtype=torch.float16)
    packed, plain = CpuProduct("int8", codes, scales), CpuProduct("bf16", torch.ones(3, 32).bfloat16())

    def held() -> set[int]:
        return {tensor.data_ptr() for tensor in processor.iter_weights()}

    assert {codes.data_ptr(), scales.data_ptr(), plain._weights.data_ptr()} <= held()
    del packed
    gc.collect()
    assert not {codes.data_ptr(), scales.data_ptr()} & held()


def large_kb() -> int:
    """What of this process lies in large pages, as the kernel tells it."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.findall(r"AnonHugePages:\s+(\d+) kB", rollup)[0])


def large_kb_about(address: int) -> int:
    """What of the mapping that holds an address lies in large pages."""
    maps = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())[1:]
    ranges = [([int(end, 16) for end in text.split(maxsplit=1)[0].split("-")], text) for text in maps]
    (text,) = (text for (begin, end), text in ranges if begin <= address < end)
    return int(re.findall(r"AnonHugePages:\s+(\d+) kB", text)[0])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the kernel does not tell")
def test_a_cache_is_allocated_in_large_pages() -> None:
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("the kernel gives no large pages")
    spec = replace(PRESETS["smollm2-135m"], layers=8)
    _, caches = allocate_caches(spec, 1, 4096, torch.bfloat16, torch.device("cpu"))
    assert all(not each.any() for cache in caches for each in cache.all_slots)
    caches[0].fill(torch.Generator().manual_seed(0), 4096)
    assert (
        float(caches[0].all_slots[0].std()) == pytest.approx(1, rel=0.01) and not caches[1].all_slots[0].any()
    )
    for cache in caches[1:]:
        cache.fill(torch.Generator().manual_seed(0), 4096)
    assert large_kb_about(caches[4].all_slots[0].data_ptr()) >= 8 * 2048, "of 24 MB"


def test_a_cache_for_which_there_is_no_memory_is_refused_as_by_torch() -> None:
    with pytest.raises(RuntimeError, match="allocate"):
        huge_pages.allocate_zeros((1 << 50,), torch.bfloat16)


def _split_into_small_pages(weights: torch.Tensor) -> int:
    """Move a tensor into small pages that may be gathered; return what of the process lies in large ones."""
    values, libc = weights.clone(), ctypes.CDLL(None)
    start = -(-weights.data_ptr() // 4096) * 4096
    size = (weights.data_ptr() + weights.nbytes) // 4096 * 4096 - start
    no_huge_page, dont_need, huge_page = 15, 4, 14
    for advice in (no_huge_page, dont_need):
        if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice):
            pytest.skip("the kernel splits no pages")
    weights.copy_(values)
    kb = large_kb()  # from the next line on the kernel may gather by itself
    assert libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), huge_page) == 0
    return kb


@compiled
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the kernel does not tell")
def test_what_is_gathered_is_as_it_was() -> None:
    weights = torch.arange(4096.0).repeat(2048, 1).bfloat16()  # 16 MB
    kb = _split_into_small_pages(weights)
    product, x = CpuProduct("bf16", weights), torch.ones(1, 4096).bfloat16()
    before = product(x)
    size = huge_pages.PAGE_BYTES
    second_page = ctypes.c_void_p(weights.data_ptr() // size * size + size)
    if ctypes.CDLL(None).madvise(second_page, ctypes.c_size_t(size), 25):
        pytest.skip("the kernel gathers no pages")
    wanted_kb = 6 * 2048  # all but the first and the last, which others may share
    for _ in range(5):  # a page that the kernel holds just now is refused
        for _ in huge_pages.gather_into_pages(processor.iter_weights()):
            assert torch.equal(product(x), before)
        if large_kb() - kb >= wanted_kb:
            break
    assert torch.equal(weights, torch.arange(4096.0).repeat(2048, 1).bfloat16())
    assert large_kb() - kb >= wanted_kb
