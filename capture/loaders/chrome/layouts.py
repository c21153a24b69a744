"""The layouts that torch prints: where each keeps what is wanted, as expressions over lines of an event."""

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
    RESOURCES,
    VALUES,
    ns,
)

LINES: Final = 8  # of an event that may hold what is wanted, with the empty one behind its brace
_COMPLETE: Final = '\n    "ph": "X",'
WANTED: Final = ("label", "t", "dur", "correlation", "external", "args")
_EXTERNAL: Final = r'"[Ee]xternal id": ([0-9]{1,18})[^0-9]'
_END_OF_EVENT: Final = " \n{},"  # behind the arguments
_END_OF_CALL: Final = "0123456789" + _END_OF_EVENT  # with the number of the event


def line(distance: int) -> pl.Expr:
    return pl.col(f"l{distance}")


def _number(text: pl.Expr, key: str) -> pl.Expr:
    return ns(text.str.strip_prefix(f'    "{key}": ').str.strip_suffix(","))


@dataclass(frozen=True)
class Layout:
    """Where a printed event keeps what is wanted, as expressions over the lines of its first piece."""

    opening: str  # of a complete event
    label: pl.Expr  # the text of cat, name, pid and tid
    ts: pl.Expr
    dur: pl.Expr
    linked: pl.Expr
    device: pl.Expr
    operator: pl.Expr
    attends: pl.Expr  # an operator whose values matter
    kernel: pl.Expr


SPREAD: Final = Layout(  # one key a line
    opening=f'{_COMPLETE}\n    "cat": ',
    label=pl.concat_str([line(i) for i in range(2, 6)]),
    ts=_number(line(6), "ts"),
    dur=ns(line(7).str.strip_prefix('    "dur": ')),  # its comma stands on the next line
    linked=line(2).is_in([f'    "cat": "{cat}",' for cat in LINKED]),
    device=line(2).is_in([f'    "cat": "{cat}",' for cat in DEVICE]),
    operator=line(2).is_in([f'    "cat": "{cat}",' for cat in OPERATORS]),
    attends=line(3).str.contains(ATTENTION, literal=True),
    kernel=line(2).is_in([f'    "cat": "{cat}",' for cat in KERNELS]),
)
_TIMES: Final = line(2).str.strip_suffix(",").str.splitn(", ", 2)
GROUPED: Final = Layout(  # older: cat, name, pid and tid share a line, ts and dur the next
    opening=f'{_COMPLETE} "cat": ',
    label=line(1).str.strip_prefix('    "ph": "X", ').str.replace("^", "    "),
    ts=_number(_TIMES.struct.field("field_0"), "ts"),
    dur=ns(_TIMES.struct.field("field_1").str.strip_prefix('"dur": ')),
    linked=line(1).str.contains(f'^    "ph": "X", "cat": "(?:{"|".join(LINKED)})",'),
    device=line(1).str.contains(f'^    "ph": "X", "cat": "(?:{"|".join(DEVICE)})",'),
    operator=line(1).str.contains(f'^    "ph": "X", "cat": "(?:{"|".join(OPERATORS)})",'),
    attends=line(1).str.contains(ATTENTION, literal=True),
    kernel=line(1).str.contains(f'^    "ph": "X", "cat": "(?:{"|".join(KERNELS)})",'),
)


def read_lines(pieces: pl.LazyFrame, layout: Layout) -> pl.LazyFrame:
    """Add what the lines of a complete event state: label, times, correlation."""
    lines = pl.when("regular").then("piece").str.split_exact("\n", LINES - 1)
    correlation = pl.when(layout.linked).then("after").str.extract(r'"correlation": ([0-9]+)')
    external = pl.when(layout.device | layout.operator).then("after").str.extract(_EXTERNAL)
    return (
        pieces.with_columns(lines=lines.struct.rename_fields([f"l{i}" for i in range(LINES)]))
        .unnest("lines")
        .with_columns(
            label=layout.label.cast(pl.Categorical()), t=layout.ts, dur=layout.dur,
            correlation=correlation.cast(pl.Int64, strict=False),
            external=external.cast(pl.Int64, strict=False),
            args=pl.coalesce(*_operands(layout), *_launch(layout)).cast(pl.Categorical()),
        )
    )  # fmt: skip


def _launch(layout: Layout) -> list[pl.Expr]:
    """Return what a kernel states of its launch, as JSON without braces; either key may be first."""
    texts = [
        pl.when(layout.kernel)
        .then("after")
        .str.strip_chars_end(_END_OF_EVENT)
        .str.splitn(first, 2)
        .struct.field("field_1")
        for first in RESOURCES
    ]
    return [pl.concat_str(pl.lit(first), text) for first, text in zip(RESOURCES, texts, strict=True)]


def _operands(layout: Layout) -> list[pl.Expr]:
    """Return what an operator states of its operands, as JSON without braces and without ids of the call."""
    return [
        pl.when(layout.operator & where)
        .then("after")
        .str.strip_chars_end(_END_OF_CALL)
        .str.splitn(first, 2)
        .struct.field("field_1")
        for first, where in ((VALUES, layout.attends), (OPERANDS, ~layout.attends))
    ]
