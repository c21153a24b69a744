"""Requests to a model server and their tokens as tables, read line by line from a log.

Times in the tables are Unix times in ns; what a log does not report is null.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.clean_text import clean
from capture.errors import UnreadableError, UsageError
from capture.import_log import Log
from capture.loaders._typed_cells import build_frame
from capture.run import Run, build_run
from capture.source import Head, Source

REQUESTS: Final = "requests"
TOKENS: Final = "request_tokens"
STALLS: Final = "client_stalls"  # times in which the client itself could not read
MAX_SECONDS: Final = 4e9  # a Unix time beyond the year 2090 is none
_MAX_TOKENS: Final = 1 << 31
_MAX_POLLED_BYTES: Final = 1 << 24  # of a log that grows, read at once
_OF_SERVER: Final = ("queue_ns", "prefill_ns")  # what only a server measures
_LOGS_HINT: Final = "tracetui load writes one; tracetui help servers names others"

_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    REQUESTS: {
        "request": pl.String, "server_id": pl.String, "client": pl.String, "sent_ns": pl.Int64,
        "prompt_tokens": pl.Int64, "tokens": pl.Int64, "queue_ns": pl.Int64, "prefill_ns": pl.Int64,
        "ttft_ns": pl.Int64, "decode_ns": pl.Int64, "total_ns": pl.Int64, "outcome": pl.String,
    },
    TOKENS: {"request": pl.String, "token": pl.Int64, "at_ns": pl.Int64, "tokens": pl.Int64},
    STALLS: {"start_ns": pl.Int64, "end_ns": pl.Int64},
}  # fmt: skip

LineReader = Callable[[dict[str, Any], "RequestRows"], bool]  # False: the line reports no request


@dataclass
class RequestRows:
    """Rows that were read and not yet taken."""

    log: Log
    meta: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in _SCHEMAS})

    def read_line(self, line: bytes, read: LineReader, offset: int) -> None:
        """Read one line of a log; a line that is no JSON object is dropped and counted."""
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            self.log.read += 1
            self.log.drop("bad_line", "lines that are not a complete JSON object", at=offset)
        elif not read(document, self):
            self.log.note("other_lines", "lines that report no request")

    def add_request(self, **values: Any) -> None:
        """Add a request; one without a start or a name is dropped and counted."""
        self.log.read += 1
        if values.get("sent_ns") is None or not values.get("request"):
            self.log.drop("bad_request", "requests without a time or a name")
            return
        self.rows[REQUESTS].append(values)

    def take_tables(self) -> dict[str, pl.DataFrame]:
        """Return the rows as tables, without empty ones, and forget them."""
        tables = {
            name: build_frame(rows, _SCHEMAS[name], self.log) for name, rows in self.rows.items() if rows
        }
        self.rows = {name: [] for name in _SCHEMAS}
        return tables


def load_log(source: Source, read: LineReader) -> list[Run]:
    """Return the requests of a log as one run; raise UnreadableError if it has none."""
    rows = RequestRows(source.log)
    for offset, line in source.iter_lines():
        if line.strip():
            rows.read_line(line, read, offset)
    tables = rows.take_tables()
    if REQUESTS not in tables:
        raise UnreadableError("contains no finished request", where=source.label)
    meta = {**rows.meta, "clock": [0, 0]}  # times are Unix times
    return [build_run(Path(source.label).name, meta, _build_spans(tables[REQUESTS]), source.log, tables)]


def _build_spans(requests: pl.DataFrame) -> pl.DataFrame:
    """Return a span per request on the track of its client, so that a timeline shows them."""
    name = pl.format("request {}", "request")
    track = pl.coalesce(pl.format("client {}", "client"), pl.lit("requests"))
    spans = requests.select(
        kind=pl.lit("span"), name=name, t="sent_ns", dur="total_ns", track=track, lens=pl.lit("wall"),
        path=name,
    )  # fmt: skip
    return spans.filter(pl.col("dur").is_not_null())


def iter_first_objects(head: Head) -> list[dict[str, Any]]:
    """Return the JSON objects among the first complete lines of an input."""
    objects = []
    for line in head.lines[:20]:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            objects.append(document)
    return objects


def to_ns(value: Any) -> int | None:
    """Return seconds as ns; None for what is no time, or a negative one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value * 1e9) if 0 <= value < MAX_SECONDS else None


def to_count(value: Any) -> int | None:
    """Return a number of tokens; None for what is none."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return int(value) if 0 <= value < _MAX_TOKENS else None


def to_text(value: Any) -> str | None:
    """Return a name or id as text; None for what is neither text nor a number."""
    return clean(str(value), 200) or None if type(value) in (str, int) else None


def attach_requests(runs: Sequence[Run], logs: Sequence[Run]) -> list[Run]:
    """Return the runs with the requests of some logs; of the same request in two logs the one with tokens.

    Raises UsageError for a log that has no requests.
    """
    tables: dict[str, pl.DataFrame] = {}
    for log in sorted(logs, key=lambda log: TOKENS not in log.tables):
        if REQUESTS not in log.tables:
            raise UsageError(f"{log.log.source} is no log of requests", todo=_LOGS_HINT)
        label = Path(log.log.source).stem if len(logs) > 1 and TOKENS in log.tables else ""
        for name, theirs in name_by_log(log.tables, label).items():
            ours = tables.get(name)
            if ours is None:
                tables[name] = theirs
            else:
                tables[name] = (
                    _merge_requests(ours, theirs) if name == REQUESTS else pl.concat([ours, theirs])
                )
    return [replace(run, tables={**run.tables, **tables}) for run in runs]


def name_by_log(tables: Mapping[str, pl.DataFrame], label: str) -> dict[str, pl.DataFrame]:
    """Return the tables of a log, with its label in the names of requests: several clients count from one."""
    name = pl.format("{} of {}", "request", pl.lit(label))
    return {
        key: table.with_columns(request=name) if label and "request" in table.columns else table
        for key, table in tables.items()
        if key in _SCHEMAS
    }


def _merge_requests(ours: pl.DataFrame, theirs: pl.DataFrame) -> pl.DataFrame:
    """Return the requests of two logs; what only the server knows is added to the client's rows.

    Rows are the same request if the server's id is that of the response, to which vLLM appends a number.
    """
    served = {str(row["server_id"]): row for row in theirs.iter_rows(named=True)}
    by_response = {name.rpartition("-")[0]: row for name, row in served.items()} | served
    rows, matched = [], set()
    for row in ours.iter_rows(named=True):
        other = by_response.get(str(row["server_id"])) if row["server_id"] else None
        if other is not None:
            matched.add(other["request"])
            row |= {c: other[c] for c in _OF_SERVER if row[c] is None}
        rows.append(row)
    rows += [row for row in theirs.iter_rows(named=True) if row["request"] not in matched]
    return pl.DataFrame(rows, schema=ours.schema)


class LogFollower:
    """Reads the new lines of a log of requests that grows."""

    def __init__(self, path: Path, label: str = "") -> None:
        self._path, self._label, self._offset = path, label, 0
        self._read: LineReader | None = None
        self.rows = RequestRows(Log(str(path)))

    def poll(self) -> dict[str, pl.DataFrame]:
        """Return the requests that have been logged since the last call, as tables."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read(_MAX_POLLED_BYTES)
        except OSError:
            return {}
        text = text[: text.rfind(b"\n") + 1]
        if self._read is None and text:
            self._read = _choose_reader(Head(text, True))
        if self._read is not None:
            for line in text.splitlines():
                if line.strip():
                    self.rows.read_line(line, self._read, self._offset)
        self._offset += len(text)
        return name_by_log(self.rows.take_tables(), self._label)


def _choose_reader(head: Head) -> LineReader | None:
    """Return the reader of the lines of a log; None if it is none of ours."""
    from capture.loaders import find_loaders  # the loaders import this module

    readers = (getattr(loader, "read_line", None) for loader in find_loaders(head))
    return next(readers, None)
