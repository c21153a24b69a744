"""Format ns, bytes, shares and other numbers as text; a column's suffix selects the format."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

ABSENT: Final = "–"

_TIME: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZE: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_HEADINGS: Final = {
    "delta": "Δ", "median delta": "median of Δ", "change": "Δ%", "median change": "Δ%", "cliff": "effect",
    "run delta": "Δ of the run",
    "slope": "slope/1k", "gb/s": "GB/s", "gflop/s": "GFLOP/s", "roof share": "roof",
    "byte/s": "GB/s", "flop/s": "GFLOP/s",
}  # fmt: skip
_RATE: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def format_duration(ns: float) -> str:
    """Format a time with four significant digits and the unit that fits: 975.3 ms, 15.48 ms, 812 ns."""
    return f"{ns:,.0f} ns" if abs(ns) < 1000 else _format_scaled(ns, _TIME, " ")


def format_size(n: float) -> str:
    """Format a number of bytes with the unit that fits."""
    return f"{n:,.0f} B" if abs(n) < 1024 else _format_scaled(n, _SIZE, " ")


def format_share(fraction: float) -> str:
    """Format a fraction of one in per cent."""
    return f"{100 * fraction:.1f}%"


def format_number(value: float) -> str:
    """Format a number with separators; a large fraction with a prefix."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e6 else _format_scaled(value, _RATE, "")


def format_rate(per_second: float) -> str:
    """Format a rate with the prefix that fits."""
    return _format_scaled(per_second, _RATE, " ")


def format_speed(per_second: float) -> str:
    """Format tokens per second: integers from a thousand on, else four significant digits."""
    return f"{per_second:,.0f}" if per_second >= 1000 else f"{per_second:.4g}"


def format_quantity(value: float, unit: str | None) -> str:
    """Format a sampled value in its unit: 1,236 MHz, 87.5% of its maximum."""
    if unit is None:
        return format_number(value)
    if unit.startswith("%"):
        return f"{value:.1f}{unit}"
    if unit.startswith("B/"):
        return f"{format_rate(value)}{unit}" if abs(value) >= 1000 else f"{value:.0f} {unit}"
    return f"{value:,.0f} {unit}"


def format_giga(value: float) -> str:
    """Format a rate that is already in GB/s or GFLOP/s, without another prefix."""
    return _format_scaled(value, ((1.0, ""),), "")


def with_plus(text: str, value: float) -> str:
    """Return a text with a plus in front if its value is positive."""
    return f"+{text}" if value > 0 else text


def _format_scaled(value: float, scale: Sequence[tuple[float, str]], gap: str) -> str:
    factor, unit = next((s for s in scale if abs(value) >= s[0] * 0.99995), scale[-1])
    x = value / factor
    digits = 0 if abs(x) >= 1000 else 1 if abs(x) >= 100 else 2 if abs(x) >= 10 else 3
    return f"{x:,.{digits}f}{gap}{unit}".rstrip()


def format_change(percent: float) -> str:
    """Format a change in per cent with its sign, and an arrow that needs no colour."""
    if abs(percent) < 0.05:
        return "0.0%"
    text = f"{percent:+,.{0 if abs(percent) >= 1000 else 1}f}%"
    return f"▲ {text}" if percent > 0 else f"▼ {text}"


def format_difference(ns: float) -> str:
    """Format a difference of times with its sign."""
    return with_plus(format_duration(ns), ns)


_BY_SUFFIX: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("delta_ns", format_difference),
    ("change_pct", format_change),
    ("_times", lambda v: f"{v:.2f}×"),
    ("_ns", format_duration),
    ("_se_ns_per_1k", format_duration),
    ("_ns_per_1k", format_difference),
    ("bytes", format_size),
    ("share", format_share),
    ("share_first", format_share),
    ("share_last", format_share),
    *((name, "{:.4f}".format) for name in ("r2", "r2_a", "r2_b")),
    ("scale", lambda v: f"×{v:.3g}"),
    ("_pct", lambda v: f"{v:.1f}%"),
    ("flops_per_launch", format_rate),
    ("bytes_per_launch", format_size),
    ("gb_per_s", format_giga),
    ("gflop_per_s", format_giga),
    ("tokens_per_s", format_speed),
    ("byte_per_s", lambda v: format_giga(v / 1e9)),  # as the columns in GB/s and GFLOP/s have them
    ("flop_per_s", lambda v: format_giga(v / 1e9)),
    ("_per_s", format_rate),
)


@lru_cache(maxsize=1024)
def select_formatter(column: str) -> Callable[[Any], str]:
    """Return the function that formats the values of a column."""
    return next((w for suffix, w in _BY_SUFFIX if column.endswith(suffix)), _format_plain)


def format_cell(column: str, value: Any) -> str:
    """Format a value of a column; a dash for None."""
    return ABSENT if value is None else select_formatter(column)(value)


def format_heading(column: str) -> str:
    """Return a column's heading: total_ns → total, delta_ns → Δ."""
    name = format_plain_heading(column)
    return _HEADINGS.get(name, name)


def format_plain_heading(column: str) -> str:
    """Return a column's heading in letters that every keyboard has: delta_ns → delta."""
    for suffix in ("_ns", "_bytes", "_pct", "_ns_per_1k", "_times"):
        column = column.removesuffix(suffix)
    return column.replace("_per_s", "/s").replace("_", " ")


def _format_plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format_number(value)
    return str(value)


def format_ranges(numbers: Iterable[int]) -> str:
    """Format ascending numbers as ranges: 27, 28, 39 → '27–28, 39'."""
    ranges: list[list[int]] = []
    for n in numbers:
        if ranges and n == ranges[-1][1] + 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    return ", ".join(f"{a}–{b}" if a < b else str(a) for a, b in ranges)
