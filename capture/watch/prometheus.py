"""Parse the Prometheus text format: samples with labels; malformed lines are skipped.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_LINES: Final = 100_000
_MAX_LINE_CHARS: Final = 8192
_LABEL: Final = r'[A-Za-z_]\w*="(?:[^"\\\n]|\\.)*"'
_LINE: Final = re.compile(
    rf"([A-Za-z_:][\w:]*)(?:\{{((?:{_LABEL},?\s?)*)\}})?[ \t]+([-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|Inf|NaN))"
)
_LABELS: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class MetricSample:
    """One value with its name and labels."""

    name: str
    labels: dict[str, str]
    value: float


MetricReader = Callable[[bytes], list[MetricSample]]  # of the body of /metrics


def create_reader(prefix: str) -> MetricReader:
    """Return a reader of Prometheus metrics whose names start with `prefix`."""
    return lambda body: parse_samples(body.decode("utf-8", "replace"), prefix)


def parse_samples(text: str, prefix: str) -> list[MetricSample]:
    """Return the samples whose names start with `prefix`; NaN values are skipped."""
    lines = text.split("\n", MAX_LINES)[:MAX_LINES]
    read = (_parse_sample(line) for line in lines if line.startswith(prefix) and len(line) <= _MAX_LINE_CHARS)
    return [sample for sample in read if sample is not None]


def _parse_sample(line: str) -> MetricSample | None:
    match = _LINE.match(line)
    if match is None:
        return None
    try:
        value = float(match[3])
    except ValueError:
        return None
    labels = dict(_LABELS.findall(match[2] or ""))
    return None if math.isnan(value) else MetricSample(match[1], labels, value)
