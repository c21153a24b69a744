"""What a device can do at best: measured once and kept, else from a table of GPUs.

A row can be no faster than its bytes at the memory's speed, its arithmetic at the units' speed, and its
launches at the least time that a launch takes.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from capture.atomic import whole_file
from capture.errors import CaptureError
from capture.places import cache_folder
from capture.text import clean

MEASURED: Final = "measured"
AT_START: Final = "measured at the start of the run"
TABLE: Final = "table"
BESIDE: Final = "read beside the run"
READING: Final = "memory_read"  # the counter of a run that says how fast its host's memory was read
GPU_FLOOR_NS: Final = 2000.0  # of a launch, where it has not been measured

_FILE: Final = "roofs.json"
_LARGEST: Final = 1 << 20
_FASTEST: Final = 1e18
_SHORT: Final = {
    "float32": "fp32",
    "float": "fp32",
    "f32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "bfloat16": "bf16",
}

_PART: Final = r"\bMIG\b|\b\dg\.\d+gb\b"

# name → GB/s and dense bf16 TFLOP/s (fp16 where there is no bf16), as their makers state them
_KNOWN: Final = (
    (r"\bG?B300\b", 8000, 2250),
    (r"\bG?B200\b", 8000, 2250),
    (r"\bGH200\b.*144 ?G", 4900, 989),
    (r"\bGH200\b.*480 ?GB", 4000, 989),
    (r"\bH200\b(?! NVL)", 4800, 989),
    (r"\bH100\b.*PCIe", 2000, 756),
    (r"\bH100\b(?!.*NVL)", 3350, 989),
    (r"\bA100\b.*40 ?GB", 1555, 312),
    (r"\bA100\b.*80 ?GB.*PCIe", 1935, 312),
    (r"\bA100\b", 2039, 312),
    (r"\bL40S\b", 864, 362),
    (r"\bL4\b", 300, 121),
    (r"\bA10G\b", 600, 70),
    (r"\bV100\b.*SXM", 900, 125),
    (r"\bV100\b.*PCIE", 900, 112),
    (r"\b5090\b(?! *(D|Laptop))", 1792, 209.5),
    (r"\b5080\b(?! *Laptop)", 960, 112.6),
    (r"\b4090\b(?! *(D|Laptop))", 1008, 165),
    (r"\b3090\b(?! *Ti)", 936, 71),
    (r"\bT4\b", 320, 65),
    (r"\bMI300X\b", 5300, 708),
    (r"\bMI355X\b", 8000, 2500),
)


# name, processors, GiB of memory, compute capability: where no other GPU has all three
_BY_PROPERTIES: Final = (
    ("AMD Instinct MI300X", 304, 192, (9, 4)),
    ("AMD Instinct MI325X", 304, 256, (9, 4)),
)


@dataclass(frozen=True)
class Roof:
    """The best that a device can do, and where the figures come from."""

    device: str
    source: str  # measured · measured at the start of the run · read beside the run · table
    read_bytes_per_s: float = 0.0  # 0: unknown, here and below
    copy_bytes_per_s: float = 0.0  # bytes read and bytes written
    flop_per_s: Mapping[str, float] = field(default_factory=dict)  # by dtype
    floor_ns: float = 0.0  # the least time from one launch to the next
    cache: str = "L2"  # what serves a row that is faster than memory
    when: str = ""
    uuid: str = ""
    driver: str = ""
    torch: str = ""
    read_low: float = 0.0  # the slowest and the fastest of the readings behind read_bytes_per_s
    read_high: float = 0.0

    @property
    def memory(self) -> float:
        """Bytes a second at best; 0 where unknown."""
        return max(self.read_bytes_per_s, self.copy_bytes_per_s)

    def compute(self, dtype: str | None) -> float:
        """Return operations a second at best, in this dtype where it was measured, else in the fastest."""
        own = self.flop_per_s.get(_SHORT.get(dtype or "", dtype or ""))
        return own or max(self.flop_per_s.values(), default=0.0)

    @property
    def key(self) -> str:
        """What a measurement holds for: this device under this driver and this torch."""
        return key(self.device, self.uuid, self.driver, self.torch)

    def as_meta(self) -> dict[str, Any]:
        """Return the roof as a run's meta and the file of kept roofs hold it."""
        fields = {**vars(self), "flop_per_s": dict(self.flop_per_s)}
        return {name: value for name, value in fields.items() if value}


def key(device: str, uuid: str, driver: str, torch: str) -> str:
    """Return the key under which a measurement is kept."""
    return " | ".join((device, uuid, driver, torch))


def from_meta(meta: Any) -> Roof | None:
    """Return the roof that a run's meta holds; None where it holds none with a possible figure."""
    if not isinstance(meta, Mapping):
        return None
    words = ("device", "source", "cache", "when", "uuid", "driver", "torch")
    text = {w: clean(v, 200) for w in words if isinstance(v := meta.get(w), str)}
    figures = ("read_bytes_per_s", "read_low", "read_high", "copy_bytes_per_s", "floor_ns")
    numbers = {f: float(meta[f]) for f in figures if _is_possible(meta.get(f))}
    rates = meta.get("flop_per_s")
    stated = rates.items() if isinstance(rates, Mapping) else ()
    flops = {clean(str(k), 20): float(v) for k, v in stated if _is_possible(v)}
    roof = Roof(**{"device": "", "source": MEASURED, **text}, **numbers, flop_per_s=flops)  # type: ignore[arg-type]
    return roof if roof.memory or roof.flop_per_s else None


def _is_possible(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _FASTEST


def from_table(device: str) -> Roof | None:
    """Return the roof of a GPU as its maker states it; None for one that is not in the table, and for a part
    of a GPU (MIG), which has a share that its name does not tell.
    """
    if re.search(_PART, device, re.IGNORECASE):
        return None
    for pattern, gigabytes, teraflops in _KNOWN:
        if re.search(pattern, device, re.IGNORECASE):
            rates = {"bf16": teraflops * 1e12}
            return Roof(device, TABLE, 0.0, gigabytes * 1e9, rates, floor_ns=GPU_FLOOR_NS)
    return None


def name_by_properties(processors: Any, memory: Any, capability: tuple[Any, Any]) -> str | None:
    """Return the name of the only GPU with so many processors, so much memory (bytes) and this compute
    capability; None for others.
    """
    for name, stated, gigabytes, version in _BY_PROPERTIES:
        known = isinstance(memory, int) and round(memory / (1 << 30)) == gigabytes
        if known and processors == stated and capability == version:
            return name
    return None


def place() -> Path | None:
    """Return the file of measured roofs; None where there is no private folder."""
    folder = cache_folder()
    return folder / _FILE if folder else None


def kept() -> dict[str, Roof]:
    """Return key → roof for every roof measured so far; a damaged file holds none."""
    path = place()
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            roofs = [from_meta(meta) for meta in json.loads(file.read(_LARGEST))["roofs"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {roof.key: roof for roof in roofs if roof}


def keep(roof: Roof) -> Path:
    """Keep a roof beside those of other devices, in place of an older one of its own; return the file."""
    path = place()
    if path is None:
        raise CaptureError("there is no private folder to keep the roofs in", todo="set XDG_CACHE_HOME")
    roofs = kept() | {roof.key: roof}
    whole = {"schema": 1, "roofs": [r.as_meta() for r in roofs.values()]}
    with whole_file(path, overwrite=True) as file:
        file.write(json.dumps(whole, indent=1).encode() + b"\n")
    return path
