"""Peak bandwidth, compute rate and launch time of devices: measured and saved, or from a table of devices.

The table is `device_roofs.tsv`: rates by number format, each row with its kind and the document it is from.
A row takes at least as long as its bytes at the memory bandwidth, its FLOPs at the compute rate, and its
launches at the shortest time between two launches.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError
from capture.files.atomic import write_atomically
from capture.files.user_dirs import find_cache_folder

MEASURED: Final = "measured"
MEASURED_AT_START: Final = "measured at the start of the run"
FROM_TABLE: Final = "table"
BY_OPTION: Final = "given by --roof"
BY_MAKER: Final = "stated"  # kind of a row of the table: what the maker states
ACHIEVABLE: Final = "achievable"  # what someone reached
KINDS: Final = (BY_MAKER, ACHIEVABLE)
FORMATS: Final = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4")
SAMPLED_DURING_RUN: Final = "read beside the run"
READ_COUNTER: Final = "memory_read"  # counter of the memory bandwidth of the host, sampled during a run
GPU_LAUNCH_FLOOR_NS: Final = 2000.0  # assumed time per launch if it has not been measured

_FILE_NAME: Final = "roofs.json"
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_RATE: Final = 1e18
_SHORT_DTYPES: Final = {
    "float32": "fp32", "float": "fp32", "f32": "fp32", "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bfloat16": "bf16", "float64": "fp64", "double": "fp64", "f64": "fp64", "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "mxfp4": "fp4", "nvfp4": "fp4",
}  # fmt: skip
_ROOF_FORMS: Final = "mem=3.35TB/s,bf16=989T, a file of such items, or a device: --roof 'NVIDIA H100 NVL'"
_QUANTITY: Final = re.compile(
    r"(?P<number>\d+(?:\.\d+)?) ?(?P<prefix>[kmgtpnuµ]?)(?P<unit>b/s|flop/s|flops|w|s)?"
)
_PREFIXES: Final = {
    "": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "n": 1e-9, "u": 1e-6, "µ": 1e-6,
}  # fmt: skip
_MIG_PART: Final = r"\bMIG\b|\b\dg\.\d+gb\b"

_TABLE_FILE: Final = Path(__file__).with_suffix(".tsv")
_NO_UNITS: Final = "-"  # cell of a format for which the device has no units of its own
# the format in which a device without units for a format multiplies it
_WIDER_FORMAT: Final = {"fp4": "fp6", "fp6": "fp8", "fp8": "bf16", "bf16": "fp16", "tf32": "fp32"}
_USUAL_FORMATS: Final = ("bf16", "fp16", "fp32")  # the first that is known stands for an unknown format
_TWIN_FORMAT: Final = {"fp16": "bf16", "bf16": "fp16"}  # as fast as each other on all devices but one

# name, multiprocessors, GiB of memory, compute capability: combinations that identify one GPU
_GPUS_BY_PROPERTIES: Final = (
    ("AMD Instinct MI300X", 304, 192, (9, 4)),
    ("AMD Instinct MI325X", 304, 256, (9, 4)),
)


class Roof(Struct, frozen=True):
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
    kind: str = ""  # of a row of the table
    by: str = ""  # who states or has reached these rates
    origin: str = ""  # address of the document
    link_bytes_per_s: float = 0.0  # to other devices, both directions
    power_w: float = 0.0  # limit
    profiled_op_ns: float = 0.0  # what torch's profiler adds to each op of a loop of small ones
    host: str = ""  # name of the machine with that time

    @property
    def memory_bytes_per_s(self) -> float:
        """Peak memory bandwidth, or 0 if unknown."""
        return max(self.read_bytes_per_s, self.copy_bytes_per_s)

    def find_flop_rate(self, dtype: str | None) -> float:
        """Return the peak FLOP/s in a number format, or 0 if it is not known.

        Without a format that a table has (None, int64), the rate of 16-bit floating-point numbers is assumed.
        """
        name = shorten_format(dtype)
        if name in FORMATS:
            return self.flop_per_s.get(name) or self.flop_per_s.get(_TWIN_FORMAT.get(name, ""), 0.0)
        return next((self.flop_per_s[name] for name in _USUAL_FORMATS if name in self.flop_per_s), 0.0)

    @property
    def key(self) -> str:
        """Key of a measurement: this device with this driver and this torch."""
        return build_key(self.device, self.uuid, self.driver, self.torch)

    def as_meta(self) -> dict[str, Any]:
        """Return the known fields, as stored in a run's meta and in the file of measured roofs."""
        fields = {**asdict(self), "flop_per_s": dict(self.flop_per_s)}
        return {name: value for name, value in fields.items() if value}


def shorten_format(dtype: str | None) -> str:
    """Return bf16, fp8 … for a number format as torch or a config writes it; other words stay."""
    name = (dtype or "").lower().removeprefix("torch.")
    return _SHORT_DTYPES.get(name, name)


def build_key(device: str, uuid: str, driver: str, torch: str) -> str:
    """Return the key of a measurement in the file of measured roofs."""
    return " | ".join((device, uuid, driver, torch))


def from_meta(meta: Any) -> Roof | None:
    """Return the roof stored in a run's meta, or None if it has no plausible rate."""
    if not isinstance(meta, Mapping):
        return None
    words = ("device", "source", "cache", "when", "uuid", "driver", "torch", "kind", "by", "origin", "host")
    text = {w: clean(v, 200) for w in words if isinstance(v := meta.get(w), str)}
    figures = (
        "read_bytes_per_s", "read_low", "read_high", "copy_bytes_per_s", "floor_ns", "link_bytes_per_s",
        "power_w", "profiled_op_ns",
    )  # fmt: skip
    numbers = {f: float(meta[f]) for f in figures if _is_possible(meta.get(f))}
    rates = meta.get("flop_per_s")
    rate_items = rates.items() if isinstance(rates, Mapping) else ()
    flops = {clean(str(k), 20): float(v) for k, v in rate_items if _is_possible(v)}
    roof = Roof(**{"device": "", "source": MEASURED, **text}, **numbers, flop_per_s=flops)  # type: ignore[arg-type]
    return roof if roof.memory_bytes_per_s or roof.flop_per_s else None


def _is_possible(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MAX_RATE


def from_table(device: str, kind: str = BY_MAKER) -> Roof | None:
    """Return the first roof of this kind that the table has for a device's name, or None.

    None also for a MIG instance: its name does not give its share of the GPU.
    """
    if re.search(_MIG_PART, device, re.IGNORECASE):
        return None
    rows = (roof for pattern, roof in _read_table() if roof.kind == kind and pattern.search(device))
    return next(rows, None)


def list_table_roofs() -> list[Roof]:
    """Return all roofs of the table, in its order."""
    return [roof for _, roof in _read_table()]


@cache
def _read_table() -> list[tuple[re.Pattern[str], Roof]]:
    """Return the pattern of names and the roof of each row of the table."""
    lines = [line for line in _TABLE_FILE.read_text().splitlines() if not line.startswith("#")]
    columns = lines[0].split("\t")
    return [_build_table_row(dict(zip(columns, line.split("\t"), strict=True))) for line in lines[1:]]


def _build_table_row(cells: Mapping[str, str]) -> tuple[re.Pattern[str], Roof]:
    rates = {name: rate * 1e12 for name in FORMATS if (rate := _find_table_rate(cells, name))}
    memory, link, power = (float(cells[column] or 0) for column in ("memory", "link", "power"))
    roof = Roof(
        cells["device"], FROM_TABLE, 0.0, memory * 1e9, rates, GPU_LAUNCH_FLOOR_NS,
        kind=cells["kind"], by=cells["by"], origin=cells["source"], link_bytes_per_s=link * 1e9,
        power_w=power,
    )  # fmt: skip
    return re.compile(cells["pattern"], re.IGNORECASE), roof


def _find_table_rate(cells: Mapping[str, str], name: str) -> float:
    """Return the TFLOP/s of a format: without units for it, those of the next wider one; 0 if unknown."""
    while cells[name] == _NO_UNITS:
        name = _WIDER_FORMAT[name]
    return float(cells[name] or 0)


def read_roof(text: str) -> Roof:
    """Return the roof that a user gives: items like `mem=3.35TB/s,bf16=989T`, a file of them, or a device.

    The file has items in lines, and comments behind #. Raise UsageError for anything else.
    """
    if "=" in text:
        return _parse_roof(text)
    path = Path(text).expanduser()
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_FILE_BYTES).splitlines()
        return _parse_roof(",".join(line.partition("#")[0] for line in lines))
    measured = (roof for roof in load_measured_roofs().values() if roof.device == text)
    roof = next(measured, None) or from_table(text)
    if roof is None:
        raise UsageError(f"no roof is known of {clean(text, 80)!r}", todo=_ROOF_FORMS)
    return roof


def _parse_roof(text: str) -> Roof:
    values: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip().lower() for part in item.partition("="))
        unit = {"mem": "b", "link": "b", "power": "w", "floor": "s"}.get(name, "f")
        match = _QUANTITY.fullmatch(value)
        if match is None or (match["unit"] or unit)[0] != unit or (unit == "f" and name not in FORMATS):
            raise UsageError(f"--roof: cannot read {clean(item, 80)!r}", todo=_ROOF_FORMS)
        values[name] = float(match["number"]) * _PREFIXES[match["prefix"]]
    rates = {name: values[name] for name in FORMATS if values.get(name)}
    meta = {
        "source": BY_OPTION, "read_bytes_per_s": values.get("mem"), "flop_per_s": rates,
        "link_bytes_per_s": values.get("link"), "power_w": values.get("power"),
        "floor_ns": 1e9 * values.get("floor", 0),
    }  # fmt: skip
    roof = from_meta(meta)
    if roof is None:
        raise UsageError("--roof: no bandwidth and no rate is given", todo=_ROOF_FORMS)
    return roof


def add_floor(roof: Roof, meta: Mapping[str, Any]) -> Roof:
    """Return a roof with the shortest launch of the run's own device, if it has none itself."""
    device = meta.get("device")
    default = from_meta(meta.get("roof")) or (from_table(device) if isinstance(device, str) else None)
    return replace(roof, floor_ns=default.floor_ns) if default and not roof.floor_ns else roof


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
