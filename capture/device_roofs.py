"""Peak bandwidth, compute rate and launch time of devices: measured and saved, or from a table of GPUs.

A row takes at least as long as its bytes at the memory bandwidth, its FLOPs at the compute rate, and its
launches at the shortest time between two launches.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from capture.clean_text import clean
from capture.errors import CaptureError
from capture.files.atomic import write_atomically
from capture.files.user_dirs import find_cache_folder

MEASURED: Final = "measured"
MEASURED_AT_START: Final = "measured at the start of the run"
FROM_TABLE: Final = "table"
SAMPLED_DURING_RUN: Final = "read beside the run"
READ_COUNTER: Final = "memory_read"  # counter of the memory bandwidth of the host, sampled during a run
GPU_LAUNCH_FLOOR_NS: Final = 2000.0  # assumed time per launch if it has not been measured

_FILE_NAME: Final = "roofs.json"
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_RATE: Final = 1e18
_SHORT_DTYPES: Final = {
    "float32": "fp32", "float": "fp32", "f32": "fp32", "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bfloat16": "bf16",
}  # fmt: skip
_MIG_PART: Final = r"\bMIG\b|\b\dg\.\d+gb\b"

# name pattern, GB/s, dense bf16 TFLOP/s (fp16 for GPUs without bf16), from the vendor specifications
_GPU_TABLE: Final = (
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

# name, multiprocessors, GiB of memory, compute capability: combinations that identify one GPU
_GPUS_BY_PROPERTIES: Final = (
    ("AMD Instinct MI300X", 304, 192, (9, 4)),
    ("AMD Instinct MI325X", 304, 256, (9, 4)),
)


@dataclass(frozen=True)
class Roof:
    """Peak rates of a device and where they come from."""

    device: str
    source: str  # measured · measured at the start of the run · read beside the run · table
    read_bytes_per_s: float = 0.0  # 0 if unknown, here and below
    copy_bytes_per_s: float = 0.0  # bytes read and bytes written
    flop_per_s: Mapping[str, float] = field(default_factory=dict)  # by dtype
    floor_ns: float = 0.0  # shortest time from one launch to the next
    cache: str = "L2"  # serves rows that are faster than memory
    when: str = ""
    uuid: str = ""
    driver: str = ""
    torch: str = ""
    read_low: float = 0.0  # slowest and fastest of the readings behind read_bytes_per_s
    read_high: float = 0.0

    @property
    def memory_bytes_per_s(self) -> float:
        """Peak memory bandwidth, or 0 if unknown."""
        return max(self.read_bytes_per_s, self.copy_bytes_per_s)

    def find_flop_rate(self, dtype: str | None) -> float:
        """Return the peak FLOP/s for a dtype, or that of the fastest dtype if it was not measured."""
        rate = self.flop_per_s.get(_SHORT_DTYPES.get(dtype or "", dtype or ""))
        return rate or max(self.flop_per_s.values(), default=0.0)

    @property
    def key(self) -> str:
        """Key of a measurement: this device with this driver and this torch."""
        return build_key(self.device, self.uuid, self.driver, self.torch)

    def as_meta(self) -> dict[str, Any]:
        """Return the known fields, as stored in a run's meta and in the file of measured roofs."""
        fields = {**vars(self), "flop_per_s": dict(self.flop_per_s)}
        return {name: value for name, value in fields.items() if value}


def build_key(device: str, uuid: str, driver: str, torch: str) -> str:
    """Return the key of a measurement in the file of measured roofs."""
    return " | ".join((device, uuid, driver, torch))


def from_meta(meta: Any) -> Roof | None:
    """Return the roof stored in a run's meta, or None if it has no plausible rate."""
    if not isinstance(meta, Mapping):
        return None
    words = ("device", "source", "cache", "when", "uuid", "driver", "torch")
    text = {w: clean(v, 200) for w in words if isinstance(v := meta.get(w), str)}
    figures = ("read_bytes_per_s", "read_low", "read_high", "copy_bytes_per_s", "floor_ns")
    numbers = {f: float(meta[f]) for f in figures if _is_possible(meta.get(f))}
    rates = meta.get("flop_per_s")
    rate_items = rates.items() if isinstance(rates, Mapping) else ()
    flops = {clean(str(k), 20): float(v) for k, v in rate_items if _is_possible(v)}
    roof = Roof(**{"device": "", "source": MEASURED, **text}, **numbers, flop_per_s=flops)  # type: ignore[arg-type]
    return roof if roof.memory_bytes_per_s or roof.flop_per_s else None


def _is_possible(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MAX_RATE


def from_table(device: str) -> Roof | None:
    """Return the roof of a GPU from the vendor specifications, or None if it is not listed.

    None also for a MIG instance: its name does not give its share of the GPU.
    """
    if re.search(_MIG_PART, device, re.IGNORECASE):
        return None
    for pattern, gigabytes, teraflops in _GPU_TABLE:
        if re.search(pattern, device, re.IGNORECASE):
            rates = {"bf16": teraflops * 1e12}
            return Roof(device, FROM_TABLE, 0.0, gigabytes * 1e9, rates, floor_ns=GPU_LAUNCH_FLOOR_NS)
    return None


def find_gpu_name(multiprocessors: Any, memory: Any, capability: tuple[Any, Any]) -> str | None:
    """Return the name of the GPU with these properties (memory in bytes), or None if they fit none."""
    for name, count, gigabytes, version in _GPUS_BY_PROPERTIES:
        fits_memory = isinstance(memory, int) and round(memory / (1 << 30)) == gigabytes
        if fits_memory and multiprocessors == count and capability == version:
            return name
    return None


def find_measured_roofs_file() -> Path | None:
    """Return the file of measured roofs, or None without a private folder."""
    folder = find_cache_folder()
    return folder / _FILE_NAME if folder else None


def load_measured_roofs() -> dict[str, Roof]:
    """Return all measured roofs by key; none if the file is missing or damaged."""
    path = find_measured_roofs_file()
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            roofs = [from_meta(meta) for meta in json.loads(file.read(_MAX_FILE_BYTES))["roofs"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {roof.key: roof for roof in roofs if roof}


def save_measured_roof(roof: Roof) -> Path:
    """Save a roof, replacing an earlier one with the same key, and return the file."""
    path = find_measured_roofs_file()
    if path is None:
        raise CaptureError("no private folder for measured roofs", todo="set XDG_CACHE_HOME")
    roofs = load_measured_roofs() | {roof.key: roof}
    document = {"schema": 1, "roofs": [r.as_meta() for r in roofs.values()]}
    with write_atomically(path, overwrite=True) as file:
        file.write(json.dumps(document, indent=1).encode() + b"\n")
    return path
