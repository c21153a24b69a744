"""Why: in what a step differs from the median of its like, or from another step: rows, gaps, counters."""

from collections.abc import Mapping, Sequence

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.slow_steps import StepDifference, compare_steps, explain_step, sum_step
from tracetui.look import Look
from tracetui.views import Answer, Focus, TableStyle, View, find_cursor_row

WHICH_STEP = "which step? enter a row of Steps, or name it: --focus step=N"
MAX_COUNTERS = 3  # named in a note
MAX_CARRIERS = 3  # rows that the first line names
MIN_CARRIED_SHARE = 0.1  # of the difference, from which a row is named
# Columns of a step against its like → of two steps, a and b.
_PAIR_COLUMNS = {"median_ns": "a_ns", "step_ns": "b_ns", "median_count": "count_a", "count": "count_b"}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per op and per kind of gap, by falling difference; the first note is the answer."""
    run = runs[0]
    step, reference = _choose_steps(run, look)
    if step is None:
        return Answer(pl.DataFrame(), (WHICH_STEP,), key=("what",))
    difference = explain_step(run, step, reference)
    if difference is None and reference is not None:
        note = f"steps {reference:,} and {step:,} are not both recorded as single steps"
        return Answer(pl.DataFrame(), (note,), key=("what",))
    if difference is None:
        rows, note = (
            sum_step(run, step),
            f"too few similar steps to compare with step {step:,}: its time by op",
        )
        return Answer(rows.drop("by"), (note,), key=("what",), parts={"by": rows.select("what", "by")})
    head = [_describe_step(step, reference, difference)]
    if difference.unequal:
        head.append(f"a and b compute different work: {', '.join(difference.unequal)}")
    notes = [*head, *_describe_counters(difference)]
    rows = difference.rows if reference is None else _name_pair(difference.rows)
    parts = {"by": rows.select("what", "by")}
    return Answer(rows.drop("by"), tuple(notes), key=("what",), parts=parts, leading_notes=len(head))


def _name_pair(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of two steps with columns of a and b, in this order."""
    rows = rows.rename(_PAIR_COLUMNS)
    return rows.select("what", "a_ns", "b_ns", "delta_ns", "ratio_times", "count_a", "count_b", "by")


def _choose_steps(run: Run, look: Look) -> tuple[int | None, int | None]:
    """Return the step in focus, and its reference if two are; else the slowest; None if there is none."""
    step = look.focus_values.get("step")
    if isinstance(step, tuple) and len(step) == 2:
        return step[1], step[0]
    if isinstance(step, int):
        return step, None
    slow = compare_steps(run).filter("slow").sort("like_times", descending=True)
    return (int(slow["step"][0]) if slow.height else None), None


def _describe_step(step: int, reference: int | None, difference: StepDifference) -> str:
    """Return the step against its like or the other one, and the rows that make up most of the difference."""
    took, median = difference.took_ns, difference.median_ns
    like = f"{difference.like} {f'{difference.phase} ' if difference.phase else ''}steps beside it"
    times = f"{units.format_duration(took)}, {took / median:.2f}×" if median else units.format_duration(took)
    text = f"step {step:,} took {times} the median of the {like} ({units.format_duration(median)})"
    if reference is not None:
        text = f"step {step:,} (b) took {times} step {reference:,} (a: {units.format_duration(median)})"
    change = took - median
    if abs(change) < 0.02 * median:
        return f"{text}: no difference"
    same_way = difference.rows.filter(pl.col("delta_ns").sign() == (1 if change > 0 else -1))
    named = same_way.filter(pl.col("delta_ns").abs() >= MIN_CARRIED_SHARE * abs(change)).head(MAX_CARRIERS)
    parts = [f"{what} {units.format_difference(ns)}" for what, ns in named.select("what", "delta_ns").rows()]
    return f"{text}: {', '.join(parts) or 'no single row makes up a tenth of it'}"


def _describe_counters(difference: StepDifference) -> list[str]:
    rows = difference.counters.head(MAX_COUNTERS).iter_rows()
    other = "median" if difference.like > 1 else "a"
    texts = [f"{n} {value:,.4g} ({other} {m:,.4g}) {unit or ''}".rstrip() for n, value, m, unit in rows]
    return [f"beside it: {', '.join(texts)}"] if texts else []


def select_styles(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """Colour only rows that make up a tenth of the largest difference."""
    if "delta_ns" not in rows.columns:
        return {}
    deltas = rows["delta_ns"].to_list()
    largest = max(map(abs, deltas), default=0)
    tones = ["" if abs(d) < MIN_CARRIED_SHARE * largest else "bad" if d > 0 else "good" for d in deltas]
    return {"delta_ns": tones, "ratio_times": tones}


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the op, or the kernel without one, under the cursor, within the step."""
    row = find_cursor_row(answer, look)
    columns = dict(answer.parts["by"].drop_nulls().iter_rows()) if row is not None else {}
    return ((columns[row["what"]], row["what"]),) if row is not None and row["what"] in columns else ()


VIEW = View(
    "why",
    "Why",
    answer,
    needs=frozenset({"step", "dur"}),
    not_merged_because="it compares the steps of one run",
    table_style=TableStyle(select_styles, bar="delta_ns"),
    columns=(
        "what", "delta_ns", "bar", "step_ns", "median_ns", "a_ns", "b_ns", "ratio_times", "count",
        "median_count", "count_a", "count_b",
    ),
    label_column="what",
    find_focus=find_focus,
    tab="palette",
)  # fmt: skip
