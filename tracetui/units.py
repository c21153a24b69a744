"""Write ns, bytes and shares as text. A column's name says how its values are written."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

ABSENT: Final = "–"

_TIME: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZE: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_RATE: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def duration(ns: float) -> str:
    """Write a time with four significant digits and the unit that fits: 975.3 ms, 15.48 ms, 812 ns."""
    return f"{ns:,.0f} ns" if abs(ns) < 1000 else _scaled(ns, _TIME, " ")


def size(n: float) -> str:
    """Write a number of bytes with the unit that fits."""
    return f"{n:,.0f} B" if abs(n) < 1024 else _scaled(n, _SIZE, " ")


def share(fraction: float) -> str:
    """Write a fraction of one in per cent."""
    return f"{100 * fraction:.1f}%"


def number(value: float) -> str:
    """Write a number with separators; a large fraction with a prefix."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e6 else _scaled(value, _RATE, "")


def rate(per_second: float) -> str:
    """Write a rate with the prefix that fits."""
    return _scaled(per_second, _RATE, " ")


def speed(per_second: float) -> str:
    """Write tokens a second: whole ones from a thousand on, else four significant digits."""
    return f"{per_second:,.0f}" if per_second >= 1000 else f"{per_second:.4g}"


def quantity(value: float, unit: str | None) -> str:
    """Write a sampled value in its unit: 1,236 MHz, 87.5% of its maximum."""
    if unit is None:
        return number(value)
    if unit.startswith("%"):
        return f"{value:.1f}{unit}"
    if unit.startswith("B/"):
        return f"{rate(value)}{unit}" if abs(value) >= 1000 else f"{value:.0f} {unit}"
    return f"{value:,.0f} {unit}"


def giga(value: float) -> str:
    """Write a rate that is in GB/s or GFLOP/s already: no other prefix stands beside it."""
    return _scaled(value, ((1.0, ""),), "")


def signed(text: str, value: float) -> str:
    """Return a text with a plus before it where its value is positive."""
    return f"+{text}" if value > 0 else text


def _scaled(value: float, scale: Sequence[tuple[float, str]], gap: str) -> str:
    factor, unit = next((s for s in scale if abs(value) >= s[0] * 0.99995), scale[-1])
    x = value / factor
    digits = 0 if abs(x) >= 1000 else 1 if abs(x) >= 100 else 2 if abs(x) >= 10 else 3
    return f"{x:,.{digits}f}{gap}{unit}".rstrip()


def change(percent: float) -> str:
    """Write a change with its sign, and an arrow that needs no colour to be seen."""
    if abs(percent) < 0.05:
        return "0.0%"
    text = f"{percent:+,.{0 if abs(percent) >= 1000 else 1}f}%"
    return f"▲ {text}" if percent > 0 else f"▼ {text}"


def difference(ns: float) -> str:
    """Write a difference of times with its sign."""
    return signed(duration(ns), ns)


_BY_SUFFIX: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("delta_ns", difference),
    ("change_pct", change),
    ("_times", lambda v: f"{v:.2f}×"),
    ("_ns", duration),
    ("_se_ns_per_1k", duration),
    ("_ns_per_1k", difference),
    ("bytes", size),
    ("share", share),
    ("share_first", share),
    ("share_last", share),
    ("r2", lambda v: f"{v:.4f}"),
    ("scale", lambda v: f"×{v:.3g}"),
    ("_pct", lambda v: f"{v:.1f}%"),
    ("flops_per_launch", rate),
    ("bytes_per_launch", size),
    ("gb_per_s", giga),
    ("gflop_per_s", giga),
    ("_per_s", rate),
)


@lru_cache(maxsize=1024)
def writer(column: str) -> Callable[[Any], str]:
    """Return the function that writes the values of a column."""
    return next((w for suffix, w in _BY_SUFFIX if column.endswith(suffix)), _plain)


def cell(column: str, value: Any) -> str:
    """Write a value of a column; a dash for None."""
    return ABSENT if value is None else writer(column)(value)


_HEADINGS: Final = {
    "delta": "Δ",
    "median delta": "median Δ",
    "change": "Δ%",
    "median change": "Δ%",
    "cliff": "effect",
    "gb/s": "GB/s",
    "gflop/s": "GFLOP/s",
    "roof share": "roof",
}


def heading(column: str) -> str:
    """Return a column's name as a person reads it: total_ns → total."""
    name = spoken(column)
    return _HEADINGS.get(name, name)


def spoken(column: str) -> str:
    """Return a column's name in letters that every keyboard has: delta_ns → delta."""
    for suffix in ("_ns", "_bytes", "_pct", "_ns_per_1k", "_times"):
        column = column.removesuffix(suffix)
    return column.replace("_per_s", "/s").replace("_", " ")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return str(value)
