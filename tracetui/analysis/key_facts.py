"""Headline facts of a run, and the views worth opening next."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import polars as pl

from capture.run import Run
from capture.tasks import run_parallel
from tracetui import units
from tracetui.analysis import growth
from tracetui.analysis.frames.display_names import format_name, map_kernel_names
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import is_change, list_ranks, name_work, select_timed
from tracetui.analysis.kernels import compute_total_tables
from tracetui.analysis.ledger.step_ledger import GAP, Ledger, compute_ledger, find_main_phase
from tracetui.analysis.time import device_time, idle_gaps
from tracetui.analysis.time.device_time import DEVICE, DeviceUsage, StrayKernels, compute_usages
from tracetui.analysis.time.fitness import describe_fitness, has_no_work, is_graph_capture, judge_fitness
from tracetui.analysis.time.host_waits import sum_waits_by_device
from tracetui.analysis.time.idle_gaps import find_gaps, sum_by_cause
from tracetui.analysis.time.step_sampling import compute_coverage
from tracetui.analysis.time.step_table import build_step_facts, compute_decode_rate, compute_step_table
from tracetui.analysis.vitals import describe_server_status
from tracetui.look import Look

# facts
BOUND_MIN_SHARE: Final = 0.5  # of a device's time: what takes more bounds it
MENTION_MIN_SHARE: Final = 0.1  # of a device's or a step's time: a smaller share is not mentioned
LEVER_MIN_SHARE: Final = 0.01  # of a step: a smaller item is no lever
WHILE_PROFILED: Final = " while profiled"  # recording slows the host: without it, it may be in time
_BOUND: Final = {idle_gaps.HOST_LATE: "launch-bound", idle_gaps.SYNC: "bound by synchronisation",
                 "copies": "bound by copies", "communication": "bound by communication"}  # fmt: skip

# suggestions
MAX_SUGGESTIONS: Final = 3
IDLE_MIN_SHARE: Final = 0.1  # of a device's time: if it idles less, the timeline is not suggested
MIN_GROWTH_STEPS: Final = 8  # steps, below which growth is not judged


@dataclass(frozen=True)
class KeyFact:
    """One fact, with the figures of its sentence if it has any."""

    name: str  # server, latency, windows, subject, run, pace, device, bound, fit, lever
    text: str
    count: int | None = None
    total_ns: int | None = None
    share: float | None = None


@cache_per_run
def find_key_facts(run: Run) -> tuple[KeyFact, ...]:
    """Return the facts that are known, in this order.

    `server`, its `latency` and `windows`; the `subject` that ran, the `run`, its `pace`, its `device`, what
    it is `bound` by, how `fit` the capture is, and the `lever`, the item with the most to recover. Of a trace
    that shows the capture of a graph, only what it is.
    """
    if is_graph_capture(run):
        return tuple(filter(None, (_describe_subject(run), _describe_fitness(run))))
    return tuple(filter(None, _list_facts(run)))


def _list_facts(run: Run) -> list[KeyFact | None]:
    busiest = _find_busiest(run)
    has_ledger = run.has("dur") and (busiest is not None or run.has("bytes") or run.has("flops"))
    ledger = compute_ledger(run, Look()) if has_ledger else None
    server_facts = (KeyFact(name, text) for name, text in describe_server_status(run).items())
    return [
        *server_facts,
        _describe_subject(run),
        _describe_steps(run) or _sum_listed_time(run),
        _describe_speed(run, ledger, busiest),
        *(_describe_device(run, busiest) if busiest else ()),
        _describe_fitness(run),
        _find_largest_item(run, ledger),
    ]


def _describe_fitness(run: Run) -> KeyFact | None:
    fitness = judge_fitness(run)
    if fitness is None:
        return None
    return KeyFact("fit", describe_fitness(fitness), len(fitness.flaws), fitness.touched_ns)


def _find_busiest(run: Run) -> DeviceUsage | None:
    return max(compute_usages(run), key=lambda usage: usage.busy_ns, default=None)


def _describe_subject(run: Run) -> KeyFact | None:
    """Return the model and where it ran, as far as reported, else None."""
    model, *formats, device = (str(run.meta.get(k) or "") for k in ("model", "quant", "dtype", "device"))
    formats = [text for text in formats if text not in ("", "none")]  # nothing is quantised
    subject = " ".join((model, *formats)) if model else ""
    text = " on ".join(filter(None, (subject, device)))
    return KeyFact("subject", text) if text else None


def _sum_listed_time(run: Run) -> KeyFact | None:
    """Return the time of all work listed by a run without steps; None without times."""
    if not run.has("dur"):
        return None
    name_count = pl.col("name").filter(pl.col("dur") > 0).n_unique() if run.has("name") else pl.lit(0)
    rows = select_timed(run, Look()).select(names=name_count, total=pl.col("dur").sum()).collect()
    names, total = rows.row(0)
    if not total:
        return None
    text = f"{units.format_duration(total)} in {names:,} kind{'s' * (names != 1)} of {name_work(run)}"
    devices = [usage.device for usage in compute_usages(run)]
    if len(devices) > 1:
        text += f", added up over {' and '.join(devices) if len(devices) < 3 else f'{len(devices)} devices'}"
    return KeyFact("run", text, names, total)


def _describe_speed(run: Run, ledger: Ledger | None, usage: DeviceUsage | None) -> KeyFact | None:
    """Return the decode rate and its share of the bound; without a `usage` also the time outside kernels.

    None if none of these is known.
    """
    speed = compute_decode_rate(run)
    parts, share = [f"{units.format_speed(speed)} tok/s"] if speed else [], None
    is_known = ledger is not None and ledger.unmodelled_ns < MENTION_MIN_SHARE * ledger.step_ns
    if ledger is not None and is_known and ledger.unmodelled_ns < ledger.bound_ns:
        share = ledger.bound_ns / ledger.step_ns
        parts.append(f"{units.format_share(share)} of the bound")
        if speed and ledger.phase == "decode":
            parts[-1] += f" ({units.format_speed(speed / share)} tok/s)"
    outside_share = _compute_outside_share(run) if usage is None else None
    if outside_share is not None:
        parts.append(_describe_outside(run, outside_share))
    return KeyFact("pace", ", ".join(parts), share=share) if parts else None


def _describe_outside(run: Run, share: float) -> str:
    """Describe which share of the time no kernel ran, much of which may be the profiler's."""
    is_doubtful = run.meta.get("profiled") and share >= MENTION_MIN_SHARE
    basis = WHILE_PROFILED if is_doubtful else ""
    return f"{units.format_share(share)} outside of {name_work(run)}s{basis}"


def _compute_outside_share(run: Run) -> float | None:
    """Return the share without a kernel of the main phase's steps, else of the recording; None if unknown."""
    if not run.has("step"):
        return _compute_idle_share(run)
    if compute_coverage(run, Look()) is not None:
        return None
    table = compute_step_table(run, Look(phase=find_main_phase(run)))
    if "gap_ns" not in table.columns:
        return None
    gap, wall = table.drop_nulls(["gap_ns", "wall_ns"]).select(pl.col("gap_ns", "wall_ns").sum()).row(0)
    return gap / wall if wall else None


def _compute_idle_share(run: Run) -> float | None:
    """Return the share of a recording without steps that is between its kernels; None for hardly any."""
    ledger = compute_ledger(run, Look()) if run.has("t") and run.has("dur") else None
    if ledger is None or not ledger.step_ns:
        return None
    share = int(ledger.items.filter(pl.col("op") == GAP)["own_ns"].sum()) / ledger.step_ns
    return share if share >= MENTION_MIN_SHARE else None


def _describe_steps(run: Run) -> KeyFact | None:
    """Return the number and kind of the main phase's steps; None without steps."""
    phase = find_main_phase(run)
    table = build_step_facts(run)
    table = table.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String))) if phase else table
    if table.is_empty():
        return None
    count = int(table["steps"].sum())
    name = f"{phase} step" if phase else "step"
    parts = [f"{count:,} {name}s" if count > 1 else phase or "one step"]
    batches = table["batch"].drop_nulls().unique()
    if batches.len() == 1:
        parts.append(f"{batches[0]:,} sequence{'s' * (batches[0] != 1)}{_describe_contexts(table)}")
    layer = run.events["layer"] if run.has("layer") else pl.Series(dtype=pl.Int64)
    layers = layer.filter(is_change(layer)).drop_nulls().n_unique()  # rows of one layer are adjacent
    if layers > 1:
        parts.append(f"{layers} layers")
    strays = device_time.find_stray_kernels(run) if compute_usages(run) else []
    stray_texts = [_describe_stray(kernels) for kernels in strays if kernels.side in ("early", "late")]
    return KeyFact("run", "; ".join([", ".join(parts), *stray_texts]), count)


def _describe_contexts(steps: pl.DataFrame) -> str:
    """Describe the context of each of several sequences: ` of 1,025 tokens`; empty for one, or if unknown."""
    contexts = steps["context"].drop_nulls().sort()
    if contexts.is_empty() or steps["batch"][0] == 1:
        return ""
    least, most = int(contexts[0]), int(contexts[-1])
    return f" of {least:,} tokens" if least == most else f" of {least:,}–{most:,} tokens"


def _describe_stray(kernels: StrayKernels) -> str:
    """Describe briefly which kernels ran far from their step."""
    count = "one stray kernel" if kernels.count == 1 else f"{kernels.count:,} stray kernels"
    side = "before" if kernels.side == "early" else "after"
    return f"{count} {units.format_duration(kernels.distance_ns)} {side}"


def _describe_device(run: Run, usage: DeviceUsage) -> list[KeyFact]:
    """Return the facts on how busy the busiest device is, and what bounds it."""
    busy, span = usage.busy_ns / usage.span_ns, units.format_duration(usage.span_ns)
    steps = f"{usage.steps:,} steps" if usage.steps > 1 else "the step"
    basis = f"inside {steps} ({span})" if usage.steps else f"of {span}"
    text = f"{usage.device} {units.format_share(busy)} busy {basis}"
    device, bound = KeyFact("device", text, None, usage.busy_ns, busy), _find_bound(run, usage)
    return [device, bound] if bound else [device]


def _find_bound(run: Run, usage: DeviceUsage) -> KeyFact | None:
    """Return the limit of a device besides computation, or how launch-bound it is; None if unknown."""
    gaps = find_gaps(run).filter(pl.col(DEVICE) == usage.device)
    causes = sum_by_cause(gaps)
    time_by_cause = {**causes, "copies": usage.transfer_exposed_ns, "communication": usage.comm_exposed_ns}
    largest = max(_BOUND, key=lambda cause: time_by_cause.get(cause, 0))
    bound, ns = _BOUND[largest], time_by_cause.get(largest, 0)
    if ns < BOUND_MIN_SHARE * usage.span_ns:
        if not causes or set(causes) == {idle_gaps.LAUNCH_UNKNOWN}:
            return None
        largest, ns = idle_gaps.HOST_LATE, causes.get(idle_gaps.HOST_LATE, 0)
        is_partly = ns >= MENTION_MIN_SHARE * usage.span_ns
        bound = "partly launch-bound" if is_partly else "not launch-bound"
    if largest == idle_gaps.HOST_LATE and run.meta.get("profiled") and not bound.startswith("not "):
        bound += WHILE_PROFILED
    prefix, share = f"{largest} " if largest == idle_gaps.HOST_LATE else "", ns / usage.span_ns
    text = f"{bound} ({prefix}{units.format_share(share)}){_describe_host_wait(run, usage)}"
    return KeyFact("bound", text, None, ns, share)


def _describe_host_wait(run: Run, usage: DeviceUsage) -> str:
    """Describe where the host waited for a device for much of its time, as the end of a sentence."""
    waits = sum_waits_by_device(run).filter(pl.col(DEVICE).cast(pl.String) == usage.device)
    if waits.is_empty() or not MENTION_MIN_SHARE * usage.span_ns <= waits["wait_ns"][0] <= usage.span_ns:
        return ""
    return f"; the host waited {units.format_duration(waits['wait_ns'][0])} in {waits['stack'][0]}"


def _find_largest_item(run: Run, ledger: Ledger | None) -> KeyFact | None:
    """Return the item with the most to recover, and the share of time without a model."""
    if ledger is None or ledger.items.is_empty():
        return None
    first = ledger.items.row(0, named=True)
    share = first["recoverable_ns"] / ledger.step_ns
    if share < LEVER_MIN_SHARE:
        return None
    item = first["cause"] if first["op"] == GAP else f"{first['op']} ({first['cause']})"
    per_step = round(first["recoverable_ns"] / ledger.steps)
    text = f"most to recover: {item} {units.format_duration(per_step)} ({units.format_share(share)})"
    if first["op"] == GAP and run.meta.get("profiled"):
        text += WHILE_PROFILED
    unmodelled = ledger.unmodelled_ns / ledger.step_ns
    if unmodelled >= MENTION_MIN_SHARE:
        text += f"; {units.format_share(unmodelled)} not modelled"
    return KeyFact("lever", text, int(first["count"]), per_step, share)


class Suggestion(NamedTuple):
    """A view, what it shows, and the columns and values of the row that this is about."""

    view: str
    text: str
    row: tuple[tuple[str, str | int], ...] = ()


def suggest_views(run: Run) -> list[Suggestion]:
    """Return up to MAX_SUGGESTIONS views to open next, the most informative first."""
    return list(islice(_iter_suggestions(run), MAX_SUGGESTIONS))


def _iter_suggestions(run: Run) -> Iterator[Suggestion]:
    if is_graph_capture(run) or has_no_work(run):
        return
    questions = (lambda: find_key_facts(run), lambda: tuple(_suggest_late_rank(run)))
    key_facts, late_rank = run_parallel(questions, run.events.height)
    facts = {fact.name: fact.text for fact in key_facts}
    if "lever" in facts:
        yield Suggestion("fix", facts["lever"], _name_largest_item(run))
        yield from _suggest_odd_layer(run)
    yield from late_rank
    yield from _suggest_growth(run)
    if run.log.dropped:
        yield Suggestion("import", f"{run.log.dropped:,} of {run.log.read:,} records could not be read")
    yield from _suggest_idle(run)
    yield from _suggest_outside(run)
    yield from _suggest_largest(run)


def _name_largest_item(run: Run) -> tuple[tuple[str, str | int], ...]:
    """Return the columns that name the item with the most to recover."""
    ledger = compute_ledger(run, Look())
    first = {} if ledger is None else ledger.items.row(0, named=True)
    return tuple((column, first[column]) for column in ("op", "cause") if first)


def _suggest_late_rank(run: Run) -> Iterator[Suggestion]:
    """Suggest the rank that the others wait for most, if the view of ranks finds one."""
    if len(list_ranks(run)) < 2 or not (run.has("step") and run.has("dur")):
        return
    from tracetui.analysis import ranks  # numpy loads with it

    times = ranks.compare_ranks(run, Look())
    if len(times.ranks) < 2:
        return
    late = ranks.compute_rank_table(times, Look()).filter(pl.col("verdict") == "slower")
    for row in late.sort("behind_ns", descending=True).head(1).iter_rows(named=True):
        behind = units.format_duration(row["behind_ns"])
        text = f"rank {row['rank']} is late: {behind} behind the others per step"
        yield Suggestion("ranks", text, (("rank", row["rank"]),))


def _suggest_odd_layer(run: Run) -> Iterator[Suggestion]:
    """Suggest the layer with much more excess than the others in some op."""
    ledger = compute_ledger(run, Look())
    if ledger is None:
        return
    odd = ledger.items.filter(pl.col("odd").is_not_null())
    odd = odd.sort(pl.col("odd_ns") - pl.col("usual_ns"), descending=True, maintain_order=True)
    for worst in odd.head(1).iter_rows(named=True):
        odd_text, usual_text = (
            units.format_duration(worst[c] / ledger.steps) for c in ("odd_ns", "usual_ns")
        )
        where = f"{worst['op']} of layer {worst['odd']}"
        text = f"{where} is {odd_text} above its bound, of other layers {usual_text}"
        yield Suggestion("layers", text, (("layer", worst["odd"]), ("op", worst["op"])))


def _suggest_growth(run: Run) -> Iterator[Suggestion]:
    """Suggest the op that grows most over the decode steps, unless steps were folded."""
    decode_steps = build_step_facts(run).filter(pl.col("phase") == "decode")
    if decode_steps.height < MIN_GROWTH_STEPS or not run.has("op") or (decode_steps["steps"] > 1).any():
        return
    if (main := growth.describe_main_growth(run)) is not None:
        yield Suggestion("growth", main[1], (("op", main[0]),))


def _suggest_idle(run: Run) -> Iterator[Suggestion]:
    """Suggest the timeline if the busiest device idled much."""
    busiest = _find_busiest(run) if run.has("t") else None
    if busiest is not None and busiest.idle_ns / busiest.span_ns >= IDLE_MIN_SHARE:
        share = units.format_share(busiest.idle_ns / busiest.span_ns)
        yield Suggestion("timeline", f"when {busiest.device} idles: {share} of the time")


def _suggest_outside(run: Run) -> Iterator[Suggestion]:
    """Suggest the steps if much of their time is in no kernel, and no device says when it idles."""
    is_known = run.has("step") and not (run.has("t") and _find_busiest(run) is not None)
    share = _compute_outside_share(run) if is_known else None
    if share is not None and share >= IDLE_MIN_SHARE:
        text = f"{units.format_share(share)} of the time is outside of {name_work(run)}s"
        yield Suggestion("steps", text)


def _suggest_largest(run: Run) -> Iterator[Suggestion]:
    """Suggest the kernel that takes most of the time."""
    if not (run.has("dur") and run.has("name")):
        return
    (table,) = compute_total_tables(run, Look(), ["name"])
    for name, share in table.select("name", "share").head(1).iter_rows():
        if name is not None and share is not None:
            short = format_name(str(name), map_kernel_names([run]))
            text = f"{short} takes {units.format_share(share)} of the time"
            yield Suggestion("kernels", text, (("name", str(name)),))
