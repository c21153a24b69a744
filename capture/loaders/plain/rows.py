"""Rows of a plain table: separated values with quotes that may not close, or one JSON object a line."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from capture.importlog import Log

SEPARATORS: Final = (",", ";", "\t", "|")
_LONGEST_RECORD: Final = 1 << 20
_LONGEST_FIELD: Final = 1 << 24

Cells = list[Any]


def cells(line: str, separator: str) -> list[str]:
    """Return the fields of one record."""
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        return next(csv.reader([line], delimiter=separator, strict=False), [])
    except csv.Error:
        return line.split(separator)


def records(lines: Sequence[str], separator: str, log: Log, first: int = 0) -> Iterator[tuple[int, Cells]]:
    """Yield records of separated values with the number of their line, that of the first line being given.

    One whose quote never closes is dropped, and reading goes on behind it.
    """
    number = 0
    while number < len(lines):
        last = _end_of_record(lines, number)
        if last is None:
            log.read += 1
            log.drop("unclosed_quote", "records whose quote does not close", at=first + number + 1)
            number += 1
            continue
        record = "\n".join(lines[number : last + 1])
        if record.strip():
            log.read += 1
            yield first + number, cells(record, separator)
        number = last + 1


def _end_of_record(lines: Sequence[str], first: int) -> int | None:
    """Return the line on which all quotes are closed, within a megabyte."""
    quotes, size = 0, 0
    for number in range(first, len(lines)):
        quotes += lines[number].count('"')
        size += len(lines[number])
        if quotes % 2 == 0:
            return number
        if size > _LONGEST_RECORD:
            return None
    return None


def objects(
    lines: Iterable[tuple[int, str]], keys: Sequence[str], log: Log, last: int
) -> Iterator[tuple[int, Cells]]:
    """Yield the values behind some keys of one JSON object a line, with the number of the line; `last` is
    that of the last line which is not blank.
    """
    for number, line in lines:
        if not line.strip(" \t\0"):
            continue
        log.read += 1
        record = object_in(line)
        if record is not None:
            yield number, [record.get(k) for k in keys]
        elif number == last:
            log.drop("cut_line", "the last line is cut off", at=number + 1)
        else:
            log.drop("bad_line", "lines that are no JSON object", at=number + 1)


def object_in(line: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def as_text(value: Any) -> str | None:
    """Return a cell as text: a number in its shortest form, anything nested as JSON, a truth value as
    none.
    """
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) else json.dumps(value)
