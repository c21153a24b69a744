"""Iterate over records of delimited text or JSON lines, one by one (slow path)."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from capture.import_log import Log
from capture.loaders._json_document import decode_or_none

SEPARATORS: Final = (",", ";", "\t", "|")
_MAX_RECORD_LENGTH: Final = 1 << 20
_LIST_BEGIN: Final = re.compile(r"\s*\[\s*\{")
_BETWEEN: Final = re.compile(r"[\s,]*")
_MAX_FIELD_LENGTH: Final = 1 << 24

RecordCells = list[Any]


def split_record(line: str, separator: str) -> list[str]:
    """Split one record into fields; quotes may be unclosed."""
    csv.field_size_limit(_MAX_FIELD_LENGTH)
    try:
        return next(csv.reader([line], delimiter=separator, strict=False), [])
    except csv.Error:
        return line.split(separator)


def iter_delimited(
    lines: Sequence[str], separator: str, log: Log, first: int = 0
) -> Iterator[tuple[int, RecordCells]]:
    """Yield records of delimited text with their line number, counted from `first`.

    A record whose quote never closes is dropped, and reading continues on the next line.
    """
    index = 0
    while index < len(lines):
        end = _find_record_end(lines, index)
        if end is None:
            log.read += 1
            log.drop("unclosed_quote", "records with an unclosed quote", at=first + index + 1)
            index += 1
            continue
        record = "\n".join(lines[index : end + 1])
        if record.strip():
            log.read += 1
            yield first + index, split_record(record, separator)
        index = end + 1


def _find_record_end(lines: Sequence[str], first: int) -> int | None:
    """Find the line on which all quotes are closed; None beyond a megabyte."""
    quotes, size = 0, 0
    for index in range(first, len(lines)):
        quotes += lines[index].count('"')
        size += len(lines[index])
        if quotes % 2 == 0:
            return index
        if size > _MAX_RECORD_LENGTH:
            return None
    return None


def iter_json_lines(
    lines: Iterable[tuple[int, str]], keys: Sequence[str], log: Log, last: int
) -> Iterator[tuple[int, RecordCells]]:
    """Yield the values of some keys per JSON line, with the line number.

    `last` is the number of the last line that is not blank: if that one is not JSON, it was cut off.
    """
    for number, line in lines:
        if not line.strip(" \t\0"):
            continue
        log.read += 1
        record = parse_object(line)
        if record is not None:
            yield number, [record.get(key) for key in keys]
        elif number == last:
            log.drop("cut_line", "the last line is cut off", at=number + 1)
        else:
            log.drop("bad_line", "lines that are not a JSON object", at=number + 1)


def parse_object(line: str) -> dict[str, Any] | None:
    """Parse one JSON object; None for anything else."""
    value = decode_or_none(msgspec.json.decode, line.encode("utf-8", "replace"))
    return value if isinstance(value, dict) else None


def is_list(text: str) -> bool:
    """Return whether a text may be one JSON list of objects."""
    return _LIST_BEGIN.match(text) is not None


def split_list(text: str, log: Log, most: int | None = None) -> list[str]:
    """Split a JSON list of objects into JSON lines, at most so many; what cannot be read is dropped.

    A first object that has only a count gives it to all others, as TensorRT's trtexec writes it.
    """
    decoder, at = json.JSONDecoder(strict=False), text.find("[") + 1
    first, lines, others = dict[str, Any](), list[str](), 0
    while most is None or len(lines) < most:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr] # it matches an empty text
        if text.startswith("]", at):
            break
        try:
            value, at = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                others += 1
            elif not lines and not first and value.keys() == {"count"}:
                first = value
            else:
                lines.append(json.dumps(first | value))
        except (ValueError, RecursionError):
            log.drop("cut_line", "the list is cut off or damaged from here on", at=len(lines) + 1)
            break
    log.drop("bad_line", "members of the list that are not a JSON object", count=others)
    return lines


def to_cell_text(value: Any) -> str | None:
    """Convert a JSON value to text: shortest form of a number, JSON if nested, None for a boolean."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) else json.dumps(value)
