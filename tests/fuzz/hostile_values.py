"""Values that a careless reader takes for granted: numbers, words and cells that no producer should write."""

from random import Random
from typing import Any, Final

from tests.hostile import NAMES

WORDS: Final = (
    *(w for w in NAMES.values() if len(w) < 2000),
    "\ud800",
    "a/b",
    " / ",
    "//",
    "[0:3]",
    "K" * 3000,
)

NUMBERS: Final = (
    0, -1, 1, 2, 0.5, -0.0, 1e-300, 1e18, 1e19, 1e300, -1e300, float("nan"), float("inf"), float("-inf"),
    2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1,
    2**64 - 1, 2**64, 10**30, 10**400, 1669329643132548123,
)  # fmt: skip

CELLS: Final = (
    "", " ", "0", "-1", "-0.0", "1e999", "-1e999", "nan", "NaN", "inf", "-inf", "None", "N/A", "null", "true",
    "1_000", "1,000", "1,5", "1.5.2", "0x10", "+1", "007", ".5", "5.", "٣", "1e-400", "9" * 40, "9" * 5000,
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "1.5 us", "12 ms", "3 %", "µs",
    "[]", "{}", "[1, 2]", '"', "'", "a\0b", "a\tb", "a\nb", "a\r\nb", "|", "---", "# x", "`", "\ufeff",
)  # fmt: skip

# Tokens that are not JSON, or that its readers take differently.
TOKENS: Final = (
    "NaN", "Infinity", "-Infinity", "nan", "inf", "N/A", "None", "undefined", "0x10", "+1", "007", ".5", "1.",
    "1e999", "-1e999", "1e-999", "-0", "-0.0", "9" * 400, "-" + "9" * 30, "1.0000000000000000000001",
    "18446744073709551616", '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\x41"', '"\x01"', "'a'", '"', "",
    "]", "}", "{", "[", ",", ":", "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300, "truefalse", "\\",
)  # fmt: skip


def number(draw: Random) -> int | float:
    """Return a number that somebody did not expect."""
    return draw.choice(NUMBERS)


def word(draw: Random) -> str:
    """Return a text that somebody did not expect."""
    return draw.choice(WORDS)


def cell(draw: Random) -> str:
    """Return what may stand in a cell of a table or in a text."""
    return draw.choice(CELLS) if draw.random() < 0.7 else word(draw)


def scalar(draw: Random) -> Any:
    """Return a value of any simple type."""
    match draw.randrange(4):
        case 0:
            return number(draw)
        case 1:
            return word(draw)
        case 2:
            return cell(draw)
    return draw.choice((None, True, False, [], {}, [1], {"a": 1}, [None], [[]], ["x", 2, None], {"": {}}))
