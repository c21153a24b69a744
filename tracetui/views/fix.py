"""Fix: what could be recovered in a step, ranked, each item with its evidence and what usually helps."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import advice, facts, host_waits, roofline, select
from tracetui.analysis.ledger import Ledger, ledger
from tracetui.analysis.ledger_items import BOUND, GAP, UNKNOWN
from tracetui.analysis.what_if import Prediction, predictions
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, _category
from tracetui.views._fix_words import WORDS

_FOCUS: Final = "--focus op="
EXPERTS: Final = "moe.experts"
_MOST: Final = 2  # stacks in which the host waited that are told
_NAMED: Final = 0.01  # of the step: so much unknown work is worth a row, and so long a wait a note


def fix(runs: Sequence[Run], look: Look) -> Answer:
    """Return the ledger of a step, the most to recover first; the row `bound` closes the sum. Of a look that
    changes ops, what the step would take.
    """
    if look.what_if:
        return _predicted(runs[0], look)
    book = ledger(runs[0], look)
    if book is None:
        return Answer(pl.DataFrame(), ("no timed rows: there is nothing to account for",))
    shared = _shared(runs[0], book)
    rows = [_item(row, shared) for row in book.items.iter_rows(named=True) if _tells(row, book)]
    rows.append(_bound(book))
    table = pl.DataFrame({column: [row[column] for row in rows] for column in rows[0]}, strict=False)
    dress = _category.by(runs[:1], "op" if runs[0].has("op") else "name", "op")
    return Answer(table, tuple(_notes(runs[0], book)), key=("op",), dress=dress)


class _Shared(NamedTuple):
    """What the rows of an answer share."""

    book: Ledger
    ops: frozenset[str]  # that the run states
    start: int  # where its clock stands at its first event
    stepless: bool  # nothing tells steps: what was recorded counts as a whole
    capture: Mapping[bool, str]  # what to capture next where work is not known: of experts, and of others


def _shared(run: Run, book: Ledger) -> _Shared:
    ops = facts.distinct(run, "op").cast(pl.String) if run.has("op") else ()
    capture = {experts: advice.for_work(run, experts=experts) for experts in (True, False)}
    return _Shared(book, frozenset(ops), select.start(run), not run.has("step"), capture)


def _predicted(run: Run, look: Look) -> Answer:
    """Return one row a change: what is asked for, what the step saves, and what hides the rest."""
    found = predictions(run, look)
    rows = [
        {
            "what_if": p.change,
            "step_ns": p.step_ns,
            "predicted_ns": p.predicted_ns,
            "change_pct": 100 * (p.predicted_ns / p.step_ns - 1) if p.step_ns else None,
            "asked_ns": p.asked_ns,
            "saved_ns": p.saved_ns,
            "host_ns": p.host_ns,
            "host_share": p.host_ns / p.asked_ns if p.asked_ns > 0 else None,
        }
        for p in found
    ]
    notes = [_sentence(p) for p in found]
    if found[0].steps < found[0].all_steps:
        notes.append(f"replayed on {found[0].steps:,} of {found[0].all_steps:,} steps, those in the middle")
    columns = tuple(rows[0])
    return Answer(pl.DataFrame(rows), tuple(notes), key=("what_if",), columns=columns)


def _sentence(p: Prediction) -> str:
    step, new, asked, saved = map(units.duration, (p.step_ns, p.predicted_ns, p.asked_ns, p.saved_ns))
    words = f"{p.change}: a step of {step} would take {new}"
    if p.asked_ns <= 0:
        return words
    words += f": of {asked} less, it gets {saved} shorter"
    return f"{words}, {units.duration(p.host_ns)} are hidden by the host" if p.host_ns else words


def _tells(row: Mapping[str, Any], book: Ledger) -> bool:
    """Tell whether an item has something to recover, or much time of which that is not known."""
    much = row["own_ns"] >= _NAMED * book.step_ns
    return bool(row["recoverable_ns"]) or (row["cause"] == UNKNOWN and much)


def _item(row: Mapping[str, Any], shared: _Shared) -> dict[str, Any]:
    book = shared.book
    cause, is_gap, known = row["cause"], row["op"] == GAP, row["cause"] != UNKNOWN
    words = WORDS[cause]
    return {
        "id": ":".join(str(part) for part in (row["op"], row["by"] or row["layers"], cause) if part),
        "op": row["op"],
        "layers": row["layers"],
        "cause": cause,
        "recoverable_ns": round(row["recoverable_ns"] / book.steps),
        "share": row["recoverable_ns"] / book.step_ns if book.step_ns else None,
        "low_ns": round(row["low_ns"] / book.steps),
        "high_ns": round(row["recoverable_ns"] / book.steps) if known else None,
        "roof_share": None if is_gap or not known else 1 - row["recoverable_ns"] / row["own_ns"],
        "per_step": row["count"] / book.steps,
        "own_ns": round(row["own_ns"] / book.steps),
        "total_ns": row["recoverable_ns"],
        "advice": words.advice,
        "evidence": _evidence(row, shared),
        "selection": _selection(row, book, shared.ops),
        "confidence": words.confidence,
        "basis": words.basis,
        "false_if": words.false_if,
        "next": words.capture if known else shared.capture[row["op"].startswith(EXPERTS)],
    }


def _evidence(row: Mapping[str, Any], shared: _Shared) -> str:
    """Return in words what an item was seen in."""
    book, start = shared.book, shared.start
    if row["op"] != GAP:
        steps = "one step" if book.steps == 1 else f"{book.steps:,} steps"
        seen = "all" if shared.stepless else steps
        words = f"{_times(row['count'], 'launch')}, {units.duration(row['own_ns'])} in {seen}"
        return words if row["odd"] is None else f"{words}; {_odd(row, book)}"
    waited = f" in {row['by']}" if row["by"] else ""
    at = "" if row["begin"] is None else f" at {units.duration(row['begin'] - start)}"
    longest = f"the longest {units.duration(row['longest_ns'])}{at}, before {row['after']}"
    return f"{_times(row['count'], 'gap')}{waited}, {longest}{_queue(row['queued'], row['count'])}"


def _queue(queued: float | None, gaps: int) -> str:
    """Return how many kernels waited in the queue when what ended the gaps was launched, as the end of a
    sentence; empty where launches are not known.
    """
    if queued is None:
        return ""
    if not queued:
        return "; launched with nothing in the queue"
    many = f"{queued:,.0f} in the queue" if gaps == 1 else f"{queued:,.1f} in the queue on average"
    return f"; launched with {many}"


def _times(count: int, what: str) -> str:
    """Return how many launches or gaps there are, in words."""
    several = "launches" if what == "launch" else f"{what}s"
    return f"one {what}" if count == 1 else f"{count:,} {several}"


def _odd(row: Mapping[str, Any], book: Ledger) -> str:
    """Return in words which layer loses much more than the others."""
    most, usual = (units.duration(row[c] / book.steps) for c in ("odd_ns", "usual_ns"))
    return f"layer {row['odd']} loses {most} a step, others about {usual}"


def _selection(row: Mapping[str, Any], book: Ledger, ops: frozenset[str]) -> str:
    """Return the options of a report that show what an item speaks of."""
    phase = [f"--phase {book.phase}"] if book.phase else []
    if row["op"] == GAP:
        return " ".join(["steps", *phase])
    named = row["op"] in ops
    what = f"{_FOCUS}{row['op']}" if named else f"--filter '^{re.escape(row['op'])}$'"
    one = row["layers"] if row["layers"] and row["layers"].isdecimal() else ""
    return " ".join(["kernels", *phase, what, *([f"--focus layer={one}"] if one else [])])


def _bound(book: Ledger) -> dict[str, Any]:
    """Return the row that closes the sum: what the step needs at best."""
    per_step = round(book.bound_ns / book.steps)
    return {
        "id": BOUND, "op": BOUND, "layers": None, "cause": BOUND, "recoverable_ns": 0,
        "share": book.bound_ns / book.step_ns if book.step_ns else None,
        "low_ns": 0, "high_ns": 0, "roof_share": None,
        "per_step": None, "own_ns": per_step, "total_ns": book.bound_ns,
        "advice": f"{units.duration(per_step)} of the step are {_needed(book)}",
        "evidence": "", "selection": "", "confidence": "medium",
        "basis": "the greatest of bytes, operations and launches of each kernel", "false_if": "", "next": "",
    }  # fmt: skip


def _needed(book: Ledger) -> str:
    return "counted as needed" if book.unmodelled_ns else "needed at best"


def _notes(run: Run, book: Ledger) -> list[str]:
    each = [round(ns / book.steps) for ns in (book.step_ns, book.bound_ns, book.step_ns - book.bound_ns)]
    what = f"a {book.phase} step" if book.phase else "a step"
    what = what if run.has("step") else "what was recorded"
    what = f"what was asked for of {what}" if book.part else what
    step, bound, above = map(units.duration, each)
    notes = [f"{what} takes {step}: {bound} are {_needed(book)}, {above} could be recovered"]
    if book.steps > 1:
        notes[0] += f" (mean of {book.steps:,} steps)"
    if book.unmodelled_ns:
        part = units.share(book.unmodelled_ns / max(book.step_ns, 1))
        notes.append(f"{part} of the time is of kernels whose work is not known: it counts as needed")
    if book.strays == 1:
        notes.append("one kernel ran far from the rest of its step and is left out")
    elif book.strays:
        notes.append(f"{book.strays:,} kernels ran far from the rest of their steps and are left out")
    notes += _waits(run, book)
    roof = roofline.roof_of(run)
    known = roofline.describe(roof, roofline.dtype_of(run)) if roof else ""
    notes.append(f"roof: {known}" if known else "no roof is known of this device (tracetui doctor --measure)")
    return notes


def _waits(run: Run, book: Ledger) -> list[str]:
    """Return where the host waited for a device, in sentences, of the longest waits."""
    rows = host_waits.by_device(run).head(_MOST).iter_rows(named=True)
    return [host_waits.sentence(row) for row in rows if row["wait_ns"] >= _NAMED * book.step_ns]


def _entered(answer: Answer, look: Look) -> Focus:
    """Return the op, and the layer where it is one, of the item under the cursor; nothing of gaps."""
    row = look.cursor[0]
    if not 0 <= row < answer.rows.height or _FOCUS not in answer.rows["selection"][row]:
        return ()
    layers = answer.rows["layers"][row]
    one = (("layer", int(layers)),) if layers and layers.isdecimal() else ()
    return (("op", answer.rows["op"][row]), *one)


VIEW = View(
    "fix",
    "Fix",
    fix,
    needs=frozenset({"dur"}),
    key="F",
    alone="it accounts for one step of one run; kernels has the time and the roof of all",
    columns=(
        "op", "recoverable_ns", "share", "cause", "advice", "layers", "evidence", "low_ns", "roof_share",
        "per_step", "own_ns", "confidence",
    ),
    label="op",
    enter=_entered,
    row_key=("id",),
)  # fmt: skip
