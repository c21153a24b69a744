"""Chrome traces in the layouts that torch prints, scanned as lines: no JSON parser, all cores, gz in flight.

A JSON string cannot hold a raw line break, so a line of two blanks and a brace opens an event and never
stands inside a text. The keys of an event are the lines at fixed distances below it; the few events that
are not as expected go to the JSON parser one by one.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.loaders._chrome_form import LINKED, PLACE, Complete, Trace, json_text, labels_of, ns, raw_text
from capture.loaders._chrome_json import gathered, parse_blocks
from capture.source import Source

DEPTH: Final = 16  # lines below the brace that may belong to an event or to the end of the file
TAIL: Final = 1 << 20

_ARRAY: Final = '"traceEvents": ['
_OPEN: Final = "  {"
_CLOSE: Final = "\n  }"
_END: Final = "\n  ]"
_LABEL: Final = re.compile(
    r'\s+"cat": (?P<cat>"(?:[^"\\]|\\.)*"),\s+"name": (?P<name>".*"),'
    r'\s+"pid": (?P<pid>.+?),\s+"tid": (?P<tid>.+?),',
    re.DOTALL,
)


class LayoutError(ValueError):
    """The file is not printed in a layout that the line scan knows."""


def line(distance: int) -> pl.Expr:
    return pl.col(f"l{distance}")


def _number(text: pl.Expr, key: str) -> pl.Expr:
    return ns(text.str.strip_prefix(f'    "{key}": ').str.strip_suffix(","))


def _is_flow(phase: pl.Expr, tail: str) -> pl.Expr:
    """The two ends of an arrow; its rare middle is left to the parser."""
    start, finish = f'    "ph": "s",{tail}', f'    "ph": "f",{tail}'
    if tail:
        return phase.str.starts_with(start) | phase.str.starts_with(finish)
    return (phase == start) | (phase == finish)


@dataclass(frozen=True)
class Layout:
    """Where a printed event keeps what is wanted, as expressions over the lines below its brace."""

    complete: pl.Expr
    flow: pl.Expr
    label: pl.Expr  # the text of cat, name, pid and tid
    ts: pl.Expr
    dur: pl.Expr
    linked: pl.Expr
    args: pl.Expr


SPREAD: Final = Layout(  # one key a line
    complete=line(1) == '    "ph": "X",',
    flow=_is_flow(line(1), ""),
    label=pl.concat_str([line(i) for i in range(2, 6)]),
    ts=_number(line(6), "ts"),
    dur=ns(line(7).str.strip_prefix('    "dur": ')),  # its comma stands on the next line
    linked=line(2).is_in([f'    "cat": "{cat}",' for cat in LINKED]),
    args=line(10),
)
_TIMES: Final = line(2).str.strip_suffix(",").str.splitn(", ", 2)
GROUPED: Final = Layout(  # older: cat, name, pid and tid share a line, ts and dur the next
    complete=line(1).str.starts_with('    "ph": "X", "cat": '),
    flow=_is_flow(line(1), " "),
    label=line(1).str.strip_prefix('    "ph": "X", ').str.replace("^", "    "),
    ts=_number(_TIMES.struct.field("field_0"), "ts"),
    dur=ns(_TIMES.struct.field("field_1").str.strip_prefix('"dur": ')),
    linked=line(1).str.contains(f'^    "ph": "X", "cat": "(?:{"|".join(LINKED)})",'),
    args=line(4),
)


def read(source: Source) -> Trace:
    """A trace that torch printed; LayoutError for any other."""
    front, found, _ = source.head.text.partition(_ARRAY)
    if not found:
        raise LayoutError("no list of events near the start")
    rows = _scan(source.path, _layout(source.head.text[len(front) :]))
    blocks = rows["block"].drop_nulls().to_list()
    regular = rows.filter(pl.col("block").is_null())
    ending = _ending(source, blocks[-1] if blocks else "")
    truncated = _END not in ending
    torn = ending[ending.rfind("\n" + _OPEN) :]
    if truncated and _CLOSE not in torn and '"ph": "X"' in torn and not _open(blocks[-1:]):
        regular = regular.head(-1)
        source.log.read += 1
        source.log.drop("torn_event", "the last event is cut off", at=source.size)
    complete = _labelled(regular, source)
    source.log.read += complete.rows.height
    rest = gathered(parse_blocks(_texts(blocks, truncated), source.log), {}, truncated, source.log)
    if truncated:
        source.log.note(
            "cut_short", "the file ends inside its list of events", at=source.size, severity="data_loss"
        )
    return Trace(complete + rest.complete, rest.others, _header(front, ending), truncated)


def _layout(events: str) -> Layout:
    if '\n  {\n    "ph": "X",\n    "cat": ' in events:
        return SPREAD
    if '\n  {\n    "ph": "X", "cat": "' in events:
        return GROUPED
    raise LayoutError("not a layout that torch prints")


def _scan(path: Path, layout: Layout) -> pl.DataFrame:
    """One row an event: label, times and correlation where it is as expected, else its text."""
    lines = pl.scan_csv(path, has_header=False, separator="\x01", quote_char=None, schema={"l0": pl.String})
    complete = layout.complete.fill_null(False)
    below = [pl.when(pl.col("block")).then(line(i)) for i in range(1, DEPTH + 1)]
    correlation = pl.when(layout.linked).then(layout.args).str.extract(r'"correlation": ([0-9]+)')
    query = (
        lines.select(line(0), *(line(0).shift(-i).alias(f"l{i}") for i in range(1, DEPTH + 1)))
        .filter(line(0) == _OPEN)
        .filter(~layout.flow.fill_null(False))
        .with_columns(
            label=layout.label.cast(pl.Categorical()), t=layout.ts, dur=layout.dur,
            correlation=correlation.cast(pl.Int64, strict=False),
        )
        .with_columns(block=~complete | pl.col("t").is_null() | pl.col("dur").is_null())
        .select(
            "label", "t", "dur", "correlation",
            block=pl.when(pl.col("block")).then(pl.concat_str(below, separator="\n", ignore_nulls=True)),
        )
    )  # fmt: skip
    try:
        return query.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as e:
        raise LayoutError(str(e)[:200]) from None


def _ending(source: Source, last: str) -> str:
    """The end of the file, taken from the last block where that reaches it."""
    if _CLOSE + _END in last:
        return last
    if not source.gzipped:
        with source.path.open("rb") as f:
            f.seek(max(0, source.size - TAIL))
            return f.read().decode("utf-8", "replace").rstrip()
    tail = b""
    for chunk in source.chunks():
        tail = (tail + chunk)[-TAIL:]
    return tail.decode("utf-8", "replace").rstrip()


def _open(blocks: list[str]) -> bool:
    return any(_CLOSE not in block for block in blocks)


def _texts(blocks: list[str], truncated: bool) -> list[str]:
    """Each block as the JSON of one event; only the last of a cut file may lack its end."""
    if _open(blocks[:-1] if truncated else blocks):
        raise LayoutError("an event is longer than expected")
    return ["{" + block.partition(_CLOSE)[0] + ("}" if _CLOSE in block else "") for block in blocks]


def _labelled(rows: pl.DataFrame, source: Source) -> Complete:
    """The common form: each distinct label is read once."""
    words = rows["label"].unique().drop_nulls()
    told = [_read_label(word) for word in words.cast(pl.String)]
    codes = words.to_physical()
    highest = codes.max()
    spread = (
        pl.select(code=pl.int_range(highest + 1 if isinstance(highest, int) else 0, dtype=pl.UInt32))
        .join(codes.to_frame("code").with_row_index("id"), on="code", how="left", maintain_order="left")
    )["id"]  # fmt: skip
    frame = rows.select(spread.gather(rows["label"].to_physical()).alias("label"), "t", "dur", "correlation")
    labels = labels_of(found or (None, "", "") for found in told)
    if all(told):
        return Complete(frame, labels)
    broken = [i for i, found in enumerate(told) if not found]
    kept = frame.filter(~pl.col("label").is_in(broken))
    source.log.read += frame.height - kept.height
    source.log.drop("bad_event", "events whose JSON is broken", count=frame.height - kept.height)
    return Complete(kept, labels)


def _read_label(text: str) -> tuple[str, str, str] | None:
    found = _LABEL.fullmatch(text)
    if not found:
        return None
    cat, name = json_text(found["cat"]), json_text(found["name"])
    if cat is None or name is None:
        return None
    return cat, name, f"{raw_text(found['pid'].encode())}{PLACE}{raw_text(found['tid'].encode())}"


def _header(front: str, ending: str) -> dict[str, Any]:
    """The keys before and after the list of events."""
    after = ending.rpartition(_END)[2] if _END in ending else "}"
    try:
        header: dict[str, Any] = json.loads(f"{front}{_ARRAY}]{after}", strict=False)
    except ValueError:
        return {}
    header.pop("traceEvents")
    return header
