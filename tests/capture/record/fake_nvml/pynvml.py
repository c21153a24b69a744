# ruff: noqa: N802 - the names are NVML's
"""A stand-in for NVML that does what $FAKE_NVML says: how it fails, and at which call."""

import math
import os
import signal
import time
from types import SimpleNamespace

HOW, _, AT = os.environ.get("FAKE_NVML", "ok").partition("@")
CALLS = 0

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1


class NVMLError(Exception):
    pass


def nvmlInit() -> None:
    if HOW == "absent":
        raise NVMLError("NVML Shared Library Not Found")


def nvmlDeviceGetCount() -> int:
    return 2


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    if HOW == "one" and index == 0:
        raise NVMLError("Insufficient Permissions")
    return index


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    """GPU 1, and a part of GPU 0 as a handle of its own; whole UUIDs only, as the real one."""
    known = {"GPU-aaaa-0": 0, "GPU-bbbb-1": 1, "MIG-cccc-0": 7}
    if uuid not in known:
        raise NVMLError("Not Found")
    return known[uuid]


def nvmlDeviceGetUUID(handle: int) -> str:
    return {0: "GPU-aaaa-0", 1: "GPU-bbbb-1", 7: "MIG-cccc-0"}[handle]


def nvmlDeviceGetMaxMigDeviceCount(handle: int) -> int:
    return 1 if handle == 0 else 0


def nvmlDeviceGetMigDeviceHandleByIndex(handle: int, index: int) -> int:
    return 7


def _call(value: object, name: str = "") -> object:
    global CALLS
    CALLS += 1
    if HOW == "unsupported" and name == AT:
        raise NVMLError("Not Supported")
    if AT.isdecimal() and int(AT) <= CALLS:
        if HOW == "lost":
            raise NVMLError("GPU is lost")
        if HOW == "hang":
            time.sleep(600)
        if HOW == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
    return value


def nvmlDeviceGetUtilizationRates(handle: int) -> object:
    return _call(SimpleNamespace(gpu=40 + handle, memory=20))


def nvmlDeviceGetClockInfo(handle: int, which: int) -> object:
    return _call(1000 * which, "clock")


def nvmlDeviceGetPowerUsage(handle: int) -> object:
    wave = 70_500 + 30_000 * math.sin(20 * time.perf_counter())
    return _call({"nonsense": math.nan, "wave": wave}.get(HOW, 70_500), "power")


def nvmlDeviceGetTotalEnergyConsumption(handle: int) -> object:
    return _call(123_000)


def nvmlDeviceGetTemperature(handle: int, which: int) -> object:
    return _call(0xFFFFFFFF if HOW == "nonsense" else 61)


def nvmlDeviceGetMemoryInfo(handle: int) -> object:
    return _call(SimpleNamespace(used=5 << 30))


def nvmlDeviceGetPcieThroughput(handle: int, which: int) -> object:
    return _call(7)


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> object:
    return _call(0x4)
