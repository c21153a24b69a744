"""Fix: recoverable time of a step, ranked, each item with evidence, advice and what would refute it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl
from msgspec import structs

from capture.run import Run
from tracetui import units
from tracetui.analysis import recording_advice, roofline
from tracetui.analysis.frames import run_memo, selection
from tracetui.analysis.ledger import step_ledger
from tracetui.analysis.ledger.step_ledger import BOUND, GAP, NO_MODEL, Ledger, compute_ledger
from tracetui.analysis.ledger.what_if import Prediction, predict_changes
from tracetui.analysis.time import host_waits, idle_gaps
from tracetui.look import Look
from tracetui.views import SPAN, Answer, Focus, View, _category, choose_group, find_cursor_row

_FOCUS_OP: Final = "--focus op="
EXPERTS_OP: Final = "moe.experts"
_HOST_CALLS: Final = "host calls besides the kernels: activities=[CPU, CUDA], or nsys --trace=cuda,nvtx"
_ROOF_ADVICE: Final = "the rates of its device: tracetui doctor --measure on that machine, or --roof"
_GAP_SCHEMA: Final = {"id": pl.String(), "span": pl.List(pl.Int64)}
_MAX_WAITS: Final = 2  # call stacks of waits that notes name
_MIN_NAMED_SHARE: Final = 0.01  # of the step, from which unknown work gets a row, and a wait a note


class CauseAdvice(NamedTuple):
    """Texts on the items that lose time by one cause; `it` in them is the item."""

    action: str  # what usually helps, in at most 30 letters: a whole cell at 80 columns
    advice: str  # the same at length
    basis: str  # source of its ideal time
    false_if: str
    confidence: str  # high, medium or low
    record_next: str = ""  # what to record if it cannot be known


ADVICE_BY_CAUSE: Final[Mapping[str, CauseAdvice]] = {
    step_ledger.MEMORY: CauseAdvice(
        "read faster, or fewer bytes",
        "a kernel that reads faster, fewer bytes (quantisation), or more rows per read (batch)",
        "its bytes at peak bandwidth",
        "its bytes come from a cache, or the roof is of another device",
        "medium",
    ),
    step_ledger.COMPUTE: CauseAdvice(
        "use a faster kernel or format",
        "a kernel closer to the compute roof, or a cheaper number format",
        "its operations at peak compute rate",
        "it computes in a number format with another roof",
        "medium",
    ),
    step_ledger.LAUNCH: CauseAdvice(
        "fuse it with its neighbours",
        "fusing it with its neighbours: a launch costs more than its work",
        "the shortest possible launch",
        "it starts before its predecessor has ended",
        "medium",
    ),
    NO_MODEL: CauseAdvice(
        "bound unknown: see next", "its bound is unknown", "its work or its roof is unknown", "", "low"
    ),
    step_ledger.COPY: CauseAdvice(
        "keep the data on the device",
        "keeping data on the device, pinned memory, or copying a layer ahead during computation",
        "nothing else ran; low end: the part that computation could hide",
        "the computation before it has to end first",
        "medium",
    ),
    step_ledger.COMM: CauseAdvice(
        "overlap it with computation",
        "overlap with computation (another stream, split batches), or fewer and larger collectives",
        "nothing else ran; low end: the part that computation could hide",
        "it waits for a slower rank: fix that rank instead",
        "medium",
        "the other ranks: open their files together, with --merge",
    ),
    step_ledger.RANK: CauseAdvice(
        "less work for the late rank",
        "giving the late rank less work; the ranks view names it",
        "nothing else ran until another rank reached the collective",
        "the clocks of the ranks differ",
        "medium",
    ),
    idle_gaps.HOST_LATE: CauseAdvice(
        "launch ahead, launch fewer",
        "launching ahead: CUDA graphs, fewer launches (fusing, torch.compile), less work between them",
        "nothing ran, and the launch came late; the low end allows a typical launch delay",
        "the profiler itself slows the host down: check the step time without it",
        "high",
    ),
    idle_gaps.SYNC: CauseAdvice(
        "do not wait for the device",
        "not waiting: keep the value on the device, or read it one step later",
        "nothing ran, and the host had been waiting for the device",
        "the value decides what runs next",
        "high",
    ),
    idle_gaps.NOTHING_ASKED: CauseAdvice(
        "more requests, larger batches",
        "more requests, or larger batches",
        "nothing ran, and the host did nothing",
        "the host worked in a thread or process that was not recorded",
        "medium",
        _HOST_CALLS,
    ),
    idle_gaps.DEPENDENCY: CauseAdvice(
        "fewer waits between streams",
        "fewer waits between streams, devices and copies; independent work first",
        "nothing ran, although the launch was in time",
        "the launch itself was held up by the driver",
        "low",
        "stream and event waits: nsys --trace=cuda, which has them",
    ),
    idle_gaps.DISPATCH: CauseAdvice(
        "fewer and longer kernels",
        "fewer and longer kernels (fusing), or programmatic dependent launch",
        "nothing ran from one kernel to the next",
        "the trace clock is coarser than the gap",
        "low",
    ),
    idle_gaps.LAUNCH_UNKNOWN: CauseAdvice(
        "launch ahead, launch fewer",
        "launching ahead: CUDA graphs, fewer launches, less work on the host between them",
        "nothing ran",
        "another device, a copy or a collective was waited for",
        "low",
        _HOST_CALLS,
    ),
    GAP: CauseAdvice(
        "less work in between",
        "less work between the {work}s",
        "nothing measured ran",
        "something ran that was not measured",
        "low",
    ),
}  # fmt: skip


class _ItemContext(NamedTuple):
    """What all rows of an answer share."""

    ledger: Ledger
    ops: frozenset[str]  # reported by the run
    start: int  # clock of the first event, ns
    is_stepless: bool  # the source reports no steps: the recording counts as one
    work: str  # noun for a row: kernel, or operation or span of a host
    record_next: Mapping[bool, str]  # how to record unknown work: of experts (True) and of other ops


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return the ledger of a step, most recoverable first; the row `bound` completes the sum.

    Work without a known bound stands where its whole time would.

    With `look.what_if`: the predicted step time.
    """
    run = runs[0]
    if look.what_if:
        return _answer_what_if(run, look)
    ledger = compute_ledger(run, look)
    if ledger is None:
        return Answer(pl.DataFrame(), ("no timed rows: there is nothing to account for",))
    ops = run_memo.list_distinct(run, "op").cast(pl.String) if run.has("op") else ()
    is_work_known = run.has("flops") or run.has("bytes")
    record_next = {
        of: _ROOF_ADVICE
        if is_work_known and roofline.find_roof(run) is None
        else recording_advice.suggest_for_work(run, experts=of)
        for of in (True, False)
    }
    work, start = selection.name_work(run), selection.find_start_ns(run)
    shared = _ItemContext(ledger, frozenset(ops), start, not run.has("step"), work, record_next)
    items = sorted(ledger.items.iter_rows(named=True), key=_rank_item, reverse=True)
    rows = [_build_item(row, shared) for row in items if _rank_item(row)]
    rows.append(_build_bound_row(ledger, work))
    table = pl.DataFrame({column: [row[column] for row in rows] for column in rows[0]}, strict=False)
    table_style = _category.build_style_by_column([run], choose_group([run], None), "op")
    table_style = structs.replace(table_style, wide_names=False)  # the advice needs the room
    parts, notes = {GAP: _list_longest_gaps(items)}, tuple(_build_notes(run, ledger))
    return Answer(table, notes, key=("op",), parts=parts, table_style=table_style)


def _list_longest_gaps(items: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return `id` and `span`, first and last ns, of the longest gap of each item of gaps."""
    placed = [row for row in items if row["op"] == GAP and row["begin"] is not None]
    spans = [(row["begin"], row["begin"] + row["longest_ns"]) for row in placed]
    return pl.DataFrame({"id": [*map(_build_id, placed)], "span": spans}, schema=_GAP_SCHEMA)


def _answer_what_if(run: Run, look: Look) -> Answer:
    """Return one row per change: the time it removes, what a step saves of that, and what the host hides."""
    outcomes = predict_changes(run, look)
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
        for p in outcomes
    ]
    notes = [_describe_prediction(p) for p in outcomes]
    steps, all_steps = outcomes[0].steps, outcomes[0].all_steps
    if steps < all_steps:
        notes.append(f"simulated on {steps:,} of {all_steps:,} steps, from the middle")
    return Answer(pl.DataFrame(rows), tuple(notes), key=("what_if",), columns=tuple(rows[0]))


def _describe_prediction(p: Prediction) -> str:
    times = (p.step_ns, p.predicted_ns, p.asked_ns, p.saved_ns, p.host_ns)
    step, new, removed, saved, hidden = map(units.format_duration, times)
    text = f"{p.change}: a step of {step} would take {new}"
    if p.asked_ns <= 0:
        return text
    rest = f", {hidden} stay hidden by the host" if p.host_ns else ""
    return f"{text}: of the {removed} removed, it saves {saved}{rest}"


def _rank_item(row: Mapping[str, Any]) -> int:
    """Return the time that an item may save: what is recoverable, or all of it if no bound is known."""
    return int(row["own_ns"] if row["cause"] == NO_MODEL else row["recoverable_ns"])


def _build_id(row: Mapping[str, Any]) -> str:
    """Return the name of an item that stays the same from run to run."""
    return ":".join(str(part) for part in (row["op"], row["by"] or row["layers"], row["cause"]) if part)


def _build_item(row: Mapping[str, Any], shared: _ItemContext) -> dict[str, Any]:
    ledger = shared.ledger
    cause, is_gap, is_known = row["cause"], row["op"] == GAP, row["cause"] != NO_MODEL
    advice = ADVICE_BY_CAUSE[cause]
    return {
        "id": _build_id(row),
        "op": row["op"],
        "layers": row["layers"],
        "cause": cause,
        "recoverable_ns": round(row["recoverable_ns"] / ledger.steps) if is_known else None,
        "share": row["recoverable_ns"] / ledger.whole_ns if ledger.whole_ns and is_known else None,
        "low_ns": round(row["low_ns"] / ledger.steps) if is_known else None,
        "high_ns": round(row["recoverable_ns"] / ledger.steps) if is_known else None,
        "roof_share": None if is_gap or not is_known else 1 - row["recoverable_ns"] / row["own_ns"],
        "per_step": row["count"] / ledger.steps,
        "own_ns": round(row["own_ns"] / ledger.steps),
        "total_ns": row["recoverable_ns"],
        "action": advice.action,
        "advice": advice.advice.format(work=shared.work),
        "evidence": _describe_evidence(row, shared),
        "selection": _build_selection(row, ledger, shared.ops),
        "confidence": advice.confidence,
        "basis": advice.basis,
        "false_if": advice.false_if,
        "next": advice.record_next if is_known else shared.record_next[row["op"].startswith(EXPERTS_OP)],
    }


def _describe_evidence(row: Mapping[str, Any], shared: _ItemContext) -> str:
    """Describe the evidence of an item: launches or gaps, and their duration."""
    ledger, start = shared.ledger, shared.start
    if row["op"] != GAP:
        steps = "one step" if ledger.steps == 1 else f"{ledger.steps:,} steps"
        where = "all" if shared.is_stepless else steps
        count = _format_count(row["count"], "launch" if shared.work == "kernel" else "call")
        text = f"{count}, {units.format_duration(row['own_ns'])} in {where}"
        return text if row["odd"] is None else f"{text}; {_describe_odd_layer(row, ledger)}"
    waited = f" in {row['by']}" if row["by"] else ""
    at = "" if row["begin"] is None else f" at {units.format_duration(row['begin'] - start)}"
    before = "" if row["after"] is None else f", before {row['after']}"
    longest = f"the longest {units.format_duration(row['longest_ns'])}{at}{before}"
    queue = _describe_queue(row["queued"], row["count"])
    return f"{_format_count(row['count'], 'gap')}{waited}, {longest}{queue}"


def _describe_queue(queued: float | None, gaps: int) -> str:
    """Return the end of a sentence: how many kernels were queued at the launch; empty if unknown."""
    if queued is None:
        return ""
    if not queued:
        return "; launched into an empty queue"
    many = f"{queued:,.0f} in the queue" if gaps == 1 else f"{queued:,.1f} in the queue on average"
    return f"; launched with {many}"


def _format_count(count: int, what: str) -> str:
    """Return `one launch`, `3 launches`, `2 calls`."""
    several = "launches" if what == "launch" else f"{what}s"
    return f"one {what}" if count == 1 else f"{count:,} {several}"


def _describe_odd_layer(row: Mapping[str, Any], ledger: Ledger) -> str:
    """Name the layer that loses much more than the others."""
    loss, typical = (units.format_duration(row[c] / ledger.steps) for c in ("odd_ns", "usual_ns"))
    return f"layer {row['odd']} loses {loss} per step, others about {typical}"


def _build_selection(row: Mapping[str, Any], ledger: Ledger, ops: frozenset[str]) -> str:
    """Return the options of `tracetui report` that show the rows of an item."""
    phase = [f"--phase {ledger.phase}"] if ledger.phase else []
    if row["op"] == GAP:
        return " ".join(["steps", *phase])
    named = row["op"] in ops
    what = f"{_FOCUS_OP}{row['op']}" if named else f"--filter '^{re.escape(row['op'])}$'"
    layer = row["layers"] if row["layers"] and row["layers"].isdecimal() else ""
    return " ".join(["kernels", *phase, what, *([f"--focus layer={layer}"] if layer else [])])


def _build_bound_row(ledger: Ledger, work: str) -> dict[str, Any]:
    """Return the row that completes the sum: the ideal time of the step."""
    per_step = round(ledger.bound_ns / ledger.steps)
    return {
        "id": BOUND, "op": BOUND, "layers": None, "cause": BOUND, "recoverable_ns": 0,
        "share": ledger.bound_ns / ledger.whole_ns if ledger.whole_ns else None,
        "low_ns": 0, "high_ns": 0, "roof_share": None,
        "per_step": None, "own_ns": per_step, "total_ns": ledger.bound_ns,
        "action": "none: the minimum",
        "advice": f"{units.format_duration(per_step)} of the step: {_choose_need_words(ledger)}",
        "evidence": "", "selection": "", "confidence": "medium",
        "basis": f"the greatest of bytes, operations and launches of each {work}", "false_if": "", "next": "",
    }  # fmt: skip


def _choose_need_words(ledger: Ledger) -> str:
    return "counted as needed" if ledger.unmodelled_ns else "ideal"


def _build_notes(run: Run, ledger: Ledger) -> list[str]:
    what = f"a {ledger.phase} step" if ledger.phase else "a step"
    what = what if run.has("step") else "what was recorded"
    what = f"what was asked for of {what}" if ledger.is_partial else what
    step = units.format_duration(round(ledger.step_ns / ledger.steps))
    step += " on the device" * ledger.is_on_device
    verb = "takes" if ledger.steps == 1 else f"(mean of {ledger.steps:,}) takes"
    notes = [f"{what} {verb} {step}: {', '.join(_iter_parts(ledger))}"]
    work = selection.name_work(run)
    if ledger.stray_count == 1:
        notes.append(f"one {work} ran far from the rest of its step and is excluded")
    elif ledger.stray_count:
        notes.append(f"{ledger.stray_count:,} {work}s ran far from the rest of their steps and are excluded")
    waits = host_waits.sum_waits_by_device(run).head(_MAX_WAITS)
    waits = waits.filter(pl.col("wait_ns") >= _MIN_NAMED_SHARE * ledger.step_ns)
    notes += map(host_waits.describe_wait, waits.iter_rows(named=True))
    roof = roofline.find_roof(run)
    text = roofline.describe_roof(roof, roofline.find_dtype(run)) if roof else ""
    return [
        *notes,
        f"roof: {text}" if text else roofline.describe_unknown_roof(run),
        *([_describe_low_end(run)] if text else []),
        *roofline.note_experts(run),
        *roofline.note_model_config(run),
    ]


def _iter_parts(ledger: Ledger) -> Iterator[str]:
    """Yield for how much of a step the bound is unknown, what is ideal, and the range that is recoverable."""
    known_ns, above_ns = ledger.bound_ns - ledger.unmodelled_ns, ledger.step_ns - ledger.bound_ns
    times = (ledger.unmodelled_ns, known_ns, int(ledger.items["low_ns"].sum()), above_ns)
    unknown, ideal, low, above = (units.format_duration(round(ns / ledger.steps)) for ns in times)
    if ledger.unmodelled_ns:
        yield f"bound unknown for {unknown} ({units.format_share(ledger.unmodelled_ns / ledger.step_ns)})"
    if known_ns:
        yield f"{ideal} ideal"
    if known_ns or above_ns:
        yield f"{low} to {above} recoverable"


def _describe_low_end(run: Run) -> str:
    """Describe what the low end of recoverable time assumes."""
    reached = roofline.find_achievable_roof(run)
    dtype = roofline.find_dtype(run)
    if reached is None or not (reached.memory_bytes_per_s or reached.find_flop_rate(dtype)):
        return f"low end: down to {step_ledger.GOOD_ROOF_SHARE:.0%} of the roof"
    rates = roofline.describe_roof(reached, dtype)
    return f"low end: down to {rates}, else {step_ledger.GOOD_ROOF_SHARE:.0%} of the roof"


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the op (and the layer, if it is one) of the item under the cursor; of gaps, the longest."""
    row = find_cursor_row(answer, look)
    if row is not None and row["op"] == GAP and GAP in answer.parts:
        spans = answer.parts[GAP].filter(id=row["id"])["span"].to_list()
        return ((SPAN, tuple(spans[0])),) if spans else ()
    if row is None or _FOCUS_OP not in row["selection"]:
        return ()
    layers = row["layers"]
    return (("op", row["op"]), *([("layer", int(layers))] if layers and layers.isdecimal() else []))


def describe_row(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return heading and text of what stands below the table about the row under the cursor."""
    texts = (
        ("advice", row.get("advice")),  # a prediction has none
        ("evidence", row.get("evidence")),
        ("basis", row.get("basis")),
        ("unless", row.get("false_if")),
        ("see it", row.get("selection") and f"tracetui report {row['selection']} FILE"),
        ("next", row.get("next")),
    )
    return [(heading, text) for heading, text in texts if text]


VIEW = View(
    "fix",
    "Fix",
    answer,
    needs=frozenset({"dur"}),
    shortcut="F",
    not_merged_because="it accounts for a step of one run; kernels has the time and roof shares of all",
    columns=(
        "op", "recoverable_ns", "share", "action", "layers", "own_ns", "cause", "roof_share", "low_ns",
        "per_step", "confidence",
    ),
    label_column="op",
    describe_row=describe_row,
    find_focus=find_focus,
    row_key=("id",),
)  # fmt: skip
