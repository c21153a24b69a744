"""The layouts that torch prints: where each keeps what is wanted, as expressions over an event's text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.loaders.chrome.tables import (
    ATTENTION,
    DEVICE,
    KERNELS,
    LINKED,
    OPERANDS,
    OPERATORS,
    VALUES,
    ns,
)

WANTED: Final = ("label", "t", "dur", "correlation", "external", "args")
END_OF_ARGUMENTS: Final = "\n    }"
_CORRELATION: Final = '"correlation": '
_EXTERNAL: Final = 'xternal id": '  # older versions write it small
_NUMBER_OF_EVENT: Final = ', "Ev Idx"'
_DIGITS: Final = 20  # of a number, and what ends it
_WORD: Final = 12  # bytes that tell the categories apart, and that polars holds in place
_REST: Final = 1 << 30


@dataclass(frozen=True)
class Layout:
    """What stands around the parts of a complete event, up to the brace of its arguments."""

    opening: str  # before its category
    name: str  # between its category and its name
    start: str  # between its label (category, name, process, thread) and its start
    duration: str  # between its start and its duration

    def is_of(self, categories: Sequence[str]) -> pl.Expr:
        """Return whether the category of an event is one of these."""
        return pl.col("word").is_in([f"{category}{self.name}"[:_WORD] for category in categories])


SPREAD: Final = Layout(  # one key a line
    opening='\n    "ph": "X",\n    "cat": "',
    name='",\n    "name": ',
    start=',\n    "ts": ',
    duration=',\n    "dur": ',
)
GROUPED: Final = Layout(  # older: category, name, process and thread share a line, both times the next
    opening='\n    "ph": "X", "cat": "', name='", "name": ', start=',\n    "ts": ', duration=', "dur": '
)


def read_events(pieces: pl.LazyFrame, layout: Layout) -> pl.LazyFrame:
    """Add what a complete event states, null for what it does not: label, times, linked, arguments."""
    labelled = _halves(pieces, pl.when("regular").then("piece"), layout.start, ("label", "times"))
    timed = _halves(labelled, pl.col("times"), layout.duration, ("start", "rest"))
    rest = pl.col("rest").str.splitn("\n", 2).struct.field("field_0")
    known = timed.with_columns(
        t=ns(pl.col("start")),
        dur=ns(rest.str.strip_suffix(",")),  # the comma may stand on the next line
        word=pl.col("label").str.slice(len(layout.opening), _WORD),
    )
    return _with_arguments(known.with_columns(linked=layout.is_of(LINKED)), layout).with_columns(
        pl.col("label").cast(pl.Categorical())
    )


def _with_arguments(events: pl.LazyFrame, layout: Layout) -> pl.LazyFrame:
    """Add correlation, external and args, from the arguments in `after`."""
    operator, attends = layout.is_of(OPERATORS), pl.col("label").str.contains(ATTENTION, literal=True)
    asked = events.with_columns(
        call=pl.when("linked").then("after"),
        asked=pl.when(layout.is_of((*DEVICE, *OPERATORS))).then("after"),
    )
    numbered = _with_number(asked, "correlation", "call", _CORRELATION)
    numbered = _with_number(numbered, "external", "asked", _EXTERNAL)
    launch = _cut(pl.when(layout.is_of(KERNELS)).then("call"), pl.col("correlation_end"), _REST)
    return numbered.with_columns(
        args=pl.coalesce(
            _operands(OPERANDS, operator & ~attends),
            _operands(VALUES, operator & attends),
            launch.cast(pl.Categorical()),
        )
    )


def _with_number(events: pl.LazyFrame, name: str, text: str, key: str) -> pl.LazyFrame:
    """Add the number behind a key in a column of texts, and the place where it ends."""
    begin, digits, width = f"{name}_begin", f"{name}_digits", f"{name}_width"
    ends = [pl.col(digits).str.find(end, literal=True) for end in (",", "\n")]
    return (
        events.with_columns((pl.col(text).str.find(key, literal=True) + len(key)).alias(begin))
        .with_columns(_cut(pl.col(text), pl.col(begin), _DIGITS).alias(digits))
        .with_columns(pl.min_horizontal(ends).alias(width))
        .with_columns(
            pl.col(digits).str.slice(0, pl.col(width)).cast(pl.Int64, strict=False).alias(name),
            (pl.col(begin) + pl.col(width)).alias(f"{name}_end"),
        )
    )


def _operands(first: str, where: pl.Expr) -> pl.Expr:
    """Return what an operator states of its operands from a key on, without the event's number."""
    text = pl.when(where).then("after")
    begin = text.str.find(first, literal=True)
    end = text.str.find(_NUMBER_OF_EVENT, literal=True).fill_null(_REST)
    return _cut(text, begin, end - begin).cast(pl.Categorical())


def _cut(text: pl.Expr, begin: pl.Expr, length: pl.Expr | int) -> pl.Expr:
    """Return a part of a text by bytes: its letters need not be counted."""
    return text.cast(pl.Binary).bin.slice(begin, length).cast(pl.String)


def _halves(frame: pl.LazyFrame, text: pl.Expr, by: str, names: Sequence[str]) -> pl.LazyFrame:
    """Add what stands before and behind the first `by` of a text."""
    return frame.with_columns(_halves=text.str.splitn(by, 2).struct.rename_fields(names)).unnest("_halves")
