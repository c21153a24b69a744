"""The text form of Prometheus metrics, as servers expose it: samples with labels. Bad lines are left out.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
import re
from dataclasses import dataclass
from typing import Final

MOST_LINES: Final = 100_000
_LONGEST: Final = 8192
_LABEL: Final = r'[A-Za-z_]\w*="(?:[^"\\\n]|\\.)*"'
_LINE: Final = re.compile(
    rf"([A-Za-z_:][\w:]*)(?:\{{((?:{_LABEL},?\s?)*)\}})?[ \t]+([-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|Inf|NaN))"
)
_LABELS: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One value, under a name and labels."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str, prefix: str) -> list[Sample]:
    """Return the samples whose names begin so; one that is no number is left out."""
    lines = text.split("\n", MOST_LINES)[:MOST_LINES]
    read = (_sample(line) for line in lines if line.startswith(prefix) and len(line) <= _LONGEST)
    return [sample for sample in read if sample is not None]


def _sample(line: str) -> Sample | None:
    match = _LINE.match(line)
    if match is None:
        return None
    try:
        value = float(match[3])
    except ValueError:
        return None
    labels = dict(_LABELS.findall(match[2] or ""))
    return None if math.isnan(value) else Sample(match[1], labels, value)
