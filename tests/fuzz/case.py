"""One case: an input through its loader, some views, the report formats, the exports; and what must hold."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl

from capture.captures import NONE
from capture.errors import CaptureError, UnforeseenError, UsageError
from capture.export import SUFFIXES, export
from capture.open import load
from capture.run import Run
from tests.fuzz.hostile_values import cell
from tracetui.look import GROUPS, PERS, Look
from tracetui.report import FORMATS, report
from tracetui.ui.question import Question
from tracetui.ui.workers.ask import make_picture
from tracetui.views import View, ask, entered, views
from tracetui.views.ink import Size

CONTROL: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff]"
)
ONE_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Words that only a library says, or Python itself.
FOREIGN: Final = re.compile(
    r"panick|\.rs:\d|Traceback|polars|SchemaError|<class '|object at 0x|NoneType|dtype|msgspec", re.I
)
FILLED: Final = ("layer", "op", "category", "phase")  # from names, where a source leaves them open
COSTLY: Final = ("diff", "curves", "findings")  # asked less often than others


class BrokenRuleError(Exception):
    """What came out is neither a result nor one of our own sentences."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended: `answered`, `refused`, or with the fault that is told of."""

    ended: str
    place: str = ""  # of a fault: the innermost place in our code, and the kind of the exception
    details: str = ""


def warm_up(run: Run) -> None:
    """Ask all of a run once, so that every module is there before limits are set."""
    for view in views():
        runs = (run,) * min(view.runs, 2)
        report(view, runs, Look(), "md")
        make_picture(Question(view, runs, tuple(range(len(runs))), Look()), Look(), Size(80, 24))


def examine(path: Path, draw: Random) -> Outcome:
    """Return how a file goes through the program; what is asked of it is drawn."""
    try:
        return Outcome(_examine(path, draw))
    except MemoryError as e:
        return fault(e)
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt | SystemExit):
            raise
        return fault(e)


def _examine(path: Path, draw: Random) -> str:
    try:
        runs = load(path, cache=False, capture=NONE)
    except CaptureError as e:
        _check_sentence(e, path)
        return "refused"
    _check_accounts(runs)
    for _ in range(draw.choice((1, 2, 2))):
        _ask_one(runs, draw)
    if draw.random() < 0.1:
        _check_export(runs, path, draw)
    return "answered"


def _check_sentence(error: CaptureError, path: Path) -> None:
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


def _check_accounts(runs: Sequence[Run]) -> None:
    if not runs:
        raise BrokenRuleError("a loader gave no run and no error")
    for run in runs:
        log = run.log
        if not (log.read >= log.dropped >= 0 and log.kept + log.dropped == log.read and log.repaired >= 0):
            raise BrokenRuleError("an account does not add up")
        if any(ONE_LINE.search(n.message) or FOREIGN.search(n.message) for n in log.notices):
            raise BrokenRuleError("a notice is no clean sentence")


def _ask_one(runs: Sequence[Run], draw: Random) -> None:
    """Ask a view, and its report or the picture of it that a screen shows."""
    known = views()
    view = draw.choice(known)
    if view.name in COSTLY:
        view = draw.choice(known)
    asked = _asked(view, runs, draw)
    look = _look(view, asked, draw)
    try:
        if draw.random() < 0.3:
            _picture(view, asked, look, draw)
        else:
            _reports(view, asked, look, draw)
    except UsageError as e:
        if ONE_LINE.search(str(e)):
            raise BrokenRuleError("no clean sentence") from e


def _asked(view: View, runs: Sequence[Run], draw: Random) -> list[Run]:
    if view.runs == 1:
        return [draw.choice(runs)]
    return [draw.choice(runs), draw.choice(runs)] if view.runs == 2 else [*runs, *runs][: draw.choice((2, 4))]


def _look(view: View, runs: Sequence[Run], draw: Random) -> Look:
    """Return a look as keys and options make it; every other one is the plain one."""
    look = Look()
    if draw.random() < 0.5:
        return look
    steps = sorted((draw.randrange(-1, 6), draw.choice((0, 3, 1 << 62))))
    changes: dict[str, Any] = {
        "filter": draw.choice(("", "a", "^k", "(", cell(draw))),
        "group": draw.choice((None, *GROUPS)),
        "phase": draw.choice((None, "prefill", "decode", "forward", "nothing")),
        "lens": draw.choice((None, "gpu", "wall", "host", "wait")),
        "per": draw.choice(PERS),
        "window": (steps[0], steps[1]),
        "steady": True,
        "limit": draw.choice((0, 1, 3)),
        "descending": False,
        "full_names": True,
        "zoom": draw.choice(((0, 1), (0, 1 << 62), (5, 5), (-(1 << 62), 1 << 62))),
        "cursor": (draw.randrange(4), draw.randrange(40)),
    }
    look = replace(look, **{k: changes[k] for k in draw.sample(list(changes), draw.choice((1, 1, 2, 3)))})
    if draw.random() < 0.4:
        other = draw.choice([v for v in views() if v.runs <= len(runs)])
        try:
            answer = ask(other if draw.random() < 0.5 else view, runs, look)
            focus = entered(other, ask(other, runs, look), look)
        except UsageError:
            return look
        sort = draw.choice(answer.rows.columns) if answer.rows.columns else None
        look = replace(look, sort=sort, focus=focus)
    return look


def _reports(view: View, runs: Sequence[Run], look: Look, draw: Random) -> None:
    """Write the view in a format, from time to time in all, and check what each promises."""
    formats = list(FORMATS) if draw.random() < 0.15 else [draw.choice(list(FORMATS))]
    width, cut = draw.choice(((120, False), (80, True), (20, True), (400, False)))
    for format in formats:
        text = report(view, runs, look, format, width=width, cut=cut)
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


def _picture(view: View, runs: Sequence[Run], look: Look, draw: Random) -> None:
    """Make what the screen shows, and check that each line keeps to the width and is clean."""
    size = Size(
        draw.choice((1, 20, 40, 80, 120, 300)), draw.choice((1, 5, 24, 60)), ascii=draw.random() < 0.2
    )
    question = Question(view, tuple(runs), tuple(range(len(runs))), look)
    picture = make_picture(question, look, size)
    if any(CONTROL.search(span.text) or "\n" in span.text for line in picture.lines or () for span in line):
        raise BrokenRuleError(f"a control character in the picture of {view.name}")


def _check_export(runs: Sequence[Run], path: Path, draw: Random) -> None:
    """Write the runs in a form and read native lines and parquet back: rows and accounts are the same."""
    suffix = draw.choice((".jsonl", ".jsonl", *SUFFIXES))
    if suffix == ".parquet":
        runs = [draw.choice(runs)]
    out = path.with_name(f"export{suffix}")
    export(runs, out, overwrite=True)
    if suffix not in (".jsonl", ".parquet"):
        return
    if not any(run.events.height or run.tables for run in runs):
        return
    again = load(out, cache=False, capture=NONE)
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


def fault(error: BaseException) -> Outcome:
    """Return the fault that an exception is: named by the innermost place of it in our code."""
    import traceback

    origin = error.__cause__ if isinstance(error, BrokenRuleError) and error.__cause__ else error
    frames = traceback.extract_tb(origin.__traceback__)
    ours = [f for f in frames if "/capture/" in f.filename or "/tracetui/" in f.filename] or frames
    at = ours[-1] if ours else None
    where = f"{Path(at.filename).parent.name}/{Path(at.filename).name}:{at.name}" if at else "?"
    what = str(error)[:80] if isinstance(error, BrokenRuleError) else type(error).__name__
    details = "".join(traceback.format_exception(error))
    return Outcome("fault", f"{where} {what}", details[-6000:])
