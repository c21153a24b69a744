"""What to know first of a run: what it is, what its device spends the time on, and what is worth the most."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import device_time, gap_causes, host_waits, select, steps, windows
from tracetui.analysis.device_time import DEVICE, Usage
from tracetui.analysis.ledger import Ledger, ledger, main_phase
from tracetui.analysis.ledger_items import GAP
from tracetui.analysis.watched import sentences
from tracetui.look import Look

MOST: Final = 0.5  # of a device's time: what it is bound by
MUCH: Final = 0.1  # of it: what is said beside
LITTLE: Final = 0.01  # of a step: less is no lever

_BOUND: Final = {gap_causes.HOST: "launch-bound", gap_causes.SYNC: "bound by synchronisation",
                 "copies": "bound by copies", "communication": "bound by communication"}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """One thing to know, with the figures of its sentence where it has any."""

    name: str  # server, latency, windows, subject, run, pace, device, bound, lever
    text: str
    count: int | None = None
    total_ns: int | None = None
    share: float | None = None


@select.once
def verdicts(run: Run) -> tuple[Verdict, ...]:
    """Return what is known of: the `server`, its `latency` and `windows`, the `subject` that ran, the `run`,
    its `pace`, its `device`, what it is `bound` by, and the `lever`, the item with the most to recover. What
    the source does not tell is left out.
    """
    usages = device_time.usages(run)
    use = max(usages, key=lambda u: u.busy_ns) if usages else None
    asked = run.has("dur") and (use is not None or run.has("bytes") or run.has("flops"))
    book = ledger(run, Look()) if asked else None
    watched = (Verdict(name, text) for name, text in sentences(run).items())
    found = [
        *watched,
        _subject(run),
        _what(run) or _listed(run),
        _pace(run, book, use),
        *(_device(run, use) if use else ()),
        _lever(book),
    ]
    return tuple(v for v in found if v is not None)


def _subject(run: Run) -> Verdict | None:
    """Return the model and where it ran, as far as the source states them; None where it states neither."""
    model, *kinds = (str(run.meta[k]) if run.meta.get(k) else "" for k in ("model", "quant", "dtype"))
    device = str(run.meta.get("device") or "")
    what = " ".join(word for word in (model, *kinds) if word) if model else ""
    text = " on ".join(part for part in (what, device) if part)
    return Verdict("subject", text) if text else None


def _listed(run: Run) -> Verdict | None:
    """Return how much time the rows of a run without steps list; None where they tell no time."""
    if not run.has("dur"):
        return None
    named = pl.col("name").n_unique() if run.has("name") else pl.lit(0)
    rows = select.timed(run, Look()).select(names=named, total=pl.col("dur").sum()).collect()
    names, total = rows.row(0)
    if not total:
        return None
    return Verdict("run", f"{units.duration(total)} in {names:,} kernel{'s' * (names != 1)}", names, total)


def _pace(run: Run, book: Ledger | None, use: Usage | None) -> Verdict | None:
    """Return how fast tokens were decoded, what part of the fastest possible that is, and, where no device
    tells it, how long no kernel ran. None where nothing of it is known.
    """
    speed = steps.decode_rate(run)
    words, share = [f"{units.speed(speed)} tok/s"] if speed else [], None
    if book is not None and book.bound_ns and book.unmodelled_ns < MUCH * book.step_ns:
        share = book.bound_ns / book.step_ns
        at_best = f" ({units.speed(speed / share)} tok/s)" if speed and book.phase == "decode" else ""
        words.append(f"{units.share(share)} of the bound{at_best}")
    outside = _outside(run) if use is None else None
    words += [f"{units.share(outside)} outside of kernels"] if outside is not None else []
    return Verdict("pace", ", ".join(words), share=share) if words else None


def _outside(run: Run) -> float | None:
    """Return the part of the steps of the main phase in which no kernel ran; None where that is unknown."""
    if not run.has("step") or windows.coverage(run, Look()) is not None:
        return None
    table = steps.step_table(run, Look(phase=main_phase(run)))
    if "gap_ns" not in table.columns:
        return None
    gap, wall = table.drop_nulls(["gap_ns", "wall_ns"]).select(pl.col("gap_ns", "wall_ns").sum()).row(0)
    return gap / wall if wall else None


def _what(run: Run) -> Verdict | None:
    """Return what the steps of the main phase are; None of a run without steps."""
    phase = main_phase(run)
    table = steps.marks(run)
    table = table.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String))) if phase else table
    if table.is_empty():
        return None
    count = int(table["steps"].sum())
    named = f"{phase} step" if phase else "step"
    words = [f"{count:,} {named}s" if count > 1 else phase or "one step"]
    batches = table["batch"].drop_nulls().unique()
    if batches.len() == 1:
        words.append(f"{batches[0]:,} sequence{'s' * (batches[0] != 1)}")
    if (layers := _layers(run)) > 1:
        words.append(f"{layers} layers")
    strays = device_time.strays(run) if device_time.usages(run) else []
    far = [_away(kernels) for kernels in strays if kernels.side in ("early", "late")]
    return Verdict("run", "; ".join([", ".join(words), *far]), count)


def _layers(run: Run) -> int:
    """Return how many layers rows are of; they come in stretches of one layer."""
    if not run.has("layer"):
        return 0
    layer = run.events["layer"]
    return int(layer.filter(select.changes(layer)).drop_nulls().n_unique())


def _away(kernels: device_time.Strays) -> str:
    """Return in a few words which kernels ran far from their step."""
    count = "one stray kernel" if kernels.count == 1 else f"{kernels.count:,} stray kernels"
    return f"{count} {units.duration(kernels.away_ns)} {'before' if kernels.side == 'early' else 'after'}"


def _device(run: Run, use: Usage) -> list[Verdict]:
    """Return how busy the busiest device is, and what it is bound by."""
    busy, span = use.busy_ns / use.span_ns, units.duration(use.span_ns)
    steps = f"{use.steps:,} steps" if use.steps > 1 else "the step"
    where = f"inside {steps} ({span})" if use.steps else f"of {span}"
    device = Verdict("device", f"{use.device} {units.share(busy)} busy {where}", None, use.busy_ns, busy)
    return [device, *([bound] if (bound := _bound(run, use)) else [])]


def _bound(run: Run, use: Usage) -> Verdict | None:
    """Return what most of a device's time goes to beside computation; None where no launch is known."""
    gaps = gap_causes.gaps(run).filter(pl.col(DEVICE) == use.device)
    causes = gap_causes.totals(gaps)
    spent = {**causes, "copies": use.transfer_exposed_ns, "communication": use.comm_exposed_ns}
    most = max(_BOUND, key=lambda cause: spent.get(cause, 0))
    if spent.get(most, 0) < MOST * use.span_ns:
        if not causes or set(causes) == {gap_causes.UNKNOWN}:
            return None
        most, late = gap_causes.HOST, causes.get(gap_causes.HOST, 0)
        word = "partly launch-bound" if late >= MUCH * use.span_ns else "not launch-bound"
    else:
        word = _BOUND[most]
    ns, what = spent.get(most, 0), f"{gap_causes.HOST} " if most == gap_causes.HOST else ""
    share = ns / use.span_ns
    return Verdict("bound", f"{word} ({what}{units.share(share)}){_waited(run, use)}", None, ns, share)


def _waited(run: Run, use: Usage) -> str:
    """Return where the host waited for a device for much of its time, as the end of a sentence."""
    waits = host_waits.by_device(run).filter(pl.col(DEVICE).cast(pl.String) == use.device)
    if waits.is_empty() or not MUCH * use.span_ns <= waits["wait_ns"][0] <= use.span_ns:
        return ""
    return f"; the host waited {units.duration(waits['wait_ns'][0])} in {waits['stack'][0]}"


def _lever(book: Ledger | None) -> Verdict | None:
    """Return the item with the most to recover, with what part of the time nothing is known of."""
    if book is None or book.items.is_empty():
        return None
    first = book.items.row(0, named=True)
    share = first["recoverable_ns"] / book.step_ns
    if share < LITTLE:
        return None
    what = first["cause"] if first["op"] == GAP else f"{first['op']} ({first['cause']})"
    each = round(first["recoverable_ns"] / book.steps)
    text = f"most to recover: {what} {units.duration(each)} ({units.share(share)}){_unknown(book)}"
    return Verdict("lever", text, int(first["count"]), each, share)


def _unknown(book: Ledger) -> str:
    share = book.unmodelled_ns / book.step_ns
    return f"; {units.share(share)} not modelled" if share >= MUCH else ""
