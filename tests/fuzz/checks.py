"""What must hold of whatever comes out: clean sentences, true accounts, texts that hold nothing live."""

import json
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl

from capture.errors import CaptureError, UnforeseenError
from capture.export_runs import export
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.run import Run
from tracetui.ui.question import Picture
from tracetui.views import View

CONTROL: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff]"
)
ONE_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Words that only a library says, or Python itself.
FOREIGN: Final = re.compile(
    r"panick|\.rs:\d|Traceback|polars|SchemaError|<class '|object at 0x|NoneType|dtype|msgspec", re.I
)
FILLED: Final = ("layer", "op", "category", "phase")  # from names, where a source leaves them open


class BrokenRuleError(Exception):
    """What came out is neither a result nor one of our own sentences."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended: `answered`, `refused`, or with the fault that is told of."""

    ended: str
    answer: str = "load"  # which was asked for: a view, or `load`, or `export`
    form: str = ""  # in which: a format of reports, `picture`, or the suffix of an export
    place: str = ""  # of a fault: the innermost place in our code, and the kind of the exception
    details: str = ""


def check_sentence(error: CaptureError, path: Path) -> None:
    """Raise where an error is not one clean sentence of ours that names the file."""
    said = str(error)
    if error.exit_code not in (2, 3, 4):
        raise BrokenRuleError(f"exit code {error.exit_code}: {said}")
    if isinstance(error, UnforeseenError):
        raise BrokenRuleError(f"unforeseen {type(error.__cause__).__name__}") from error.__cause__
    if "not enough memory" in said:
        raise BrokenRuleError("more memory than a case may take") from error
    own = said.replace(str(path), "FILE")
    if ONE_LINE.search(own) or FOREIGN.search(own) or len(own) > 2000:
        raise BrokenRuleError("no clean sentence") from error


def check_accounts(runs: Sequence[Run]) -> None:
    """Raise where no run came out, or what was read is not what was kept and dropped."""
    if not runs:
        raise BrokenRuleError("a loader gave no run and no error")
    for run in runs:
        log = run.log
        if not (
            log.read >= log.dropped >= 0 and log.retained + log.dropped == log.read and log.repaired >= 0
        ):
            raise BrokenRuleError("an account does not add up")
        if any(ONE_LINE.search(n.message) or FOREIGN.search(n.message) for n in log.notices):
            raise BrokenRuleError("a notice is no clean sentence")


def check_report(text: str, view: View, format: str) -> None:
    """Raise where a report holds a control character, is empty, or is no JSON where it should be."""
    if CONTROL.search(text):
        raise BrokenRuleError(f"a control character in the {format} of {view.name}")
    if format == "json":
        answer = json.loads(text, parse_constant=_no_constant)
        if not (answer["rows"] or answer["notes"] or answer["columns"] or view.draw):
            raise BrokenRuleError(f"an answer of {view.name} that says nothing")
    elif not text.strip() and format != "csv":  # which has no notes
        raise BrokenRuleError(f"an empty {format} of {view.name}")


def _no_constant(word: str) -> Any:
    raise BrokenRuleError(f"{word} in JSON")


def check_picture(picture: Picture, view: View) -> None:
    """Raise where a line of the screen holds a control character or a break."""
    if any(CONTROL.search(span.text) or "\n" in span.text for line in picture.lines or () for span in line):
        raise BrokenRuleError(f"a control character in the picture of {view.name}")


def check_export(runs: Sequence[Run], path: Path, suffix: str, draw: Random) -> None:
    """Write the runs in a form and read native lines and parquet back: rows and accounts are the same."""
    if suffix == ".parquet":
        runs = [draw.choice(runs)]
    out = path.with_name(f"export{suffix}")
    export(runs, out, overwrite=True)
    if suffix not in (".jsonl", ".parquet"):
        return
    if not any(run.events.height or run.tables for run in runs):
        return
    again = load(out, cache=False, capture=NO_CAPTURE)
    if len(again) != len(runs):
        raise BrokenRuleError(f"{suffix} gives back another number of runs")
    for one, other in zip(runs, again, strict=True):
        if one.events.height != other.events.height or one.log != other.log:
            raise BrokenRuleError(f"{suffix} gives back other rows or another account")
        if any(_changed(one, other, column) for column in one.events.columns):
            raise BrokenRuleError(f"{suffix} gives back other cells")


def _changed(one: Run, other: Run, column: str) -> bool:
    """Tell whether a cell has changed; one that was open may be filled from names, as by every reading."""
    if column not in other.events.columns:
        return True
    ours, theirs = (run.events[column].cast(pl.String) for run in (one, other))
    same = ours.eq_missing(theirs) | (ours.is_null() if column in FILLED else pl.Series([False]))
    return not same.all()


def fault(error: BaseException, answer: str = "load", form: str = "") -> Outcome:
    """Return the fault that an exception is: named by the innermost place of it in our code."""
    origin = error.__cause__ if isinstance(error, BrokenRuleError) and error.__cause__ else error
    frames = traceback.extract_tb(origin.__traceback__)
    ours = [f for f in frames if "/capture/" in f.filename or "/tracetui/" in f.filename] or frames
    at = ours[-1] if ours else None
    where = f"{Path(at.filename).parent.name}/{Path(at.filename).name}:{at.name}" if at else "?"
    what = str(error)[:80] if isinstance(error, BrokenRuleError) else type(error).__name__
    details = "".join(traceback.format_exception(error))
    return Outcome("fault", answer, form, f"{where} {what}", details[-6000:])
