"""Energy and price of a run: joules per step, phase, token and row from sampled power, cost per token."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import polars as pl

from capture.devices import parse_device
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.run_memo import cache_per_run, map_chunks
from tracetui.analysis.frames.selection import list_ranks, select_timed
from tracetui.analysis.kernels import compute_unfiltered_total, is_requested_step
from tracetui.analysis.time.step_table import compute_phase_rate, compute_step_durations
from tracetui.analysis.vitals import STALE_NS
from tracetui.look import Look, Price

JOULES: Final = "joules"  # column of a row's energy
KINDS: Final = ("GPU", "CPU")
POWER_NEEDS: Final = "samples of gpu_power, or of cpu_energy"
UNKNOWN_COST: Final = "unknown: no step reports its tokens"
_MOST_OF_TIME: Final = 0.99  # of the steps' time with samples; less is said
_UNITS: Final = {"W": (1.0, False), "mW": (1e-3, False), "J": (1.0, True), "mJ": (1e-3, True)}
_UNIT_BY_NAME: Final = {  # of counters that others write without a unit
    "gpu_power": "W", "gpu_energy": "J", "cpu_energy": "J",
    "DCGM_FI_DEV_POWER_USAGE": "W", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "mJ",
}  # fmt: skip
_POWER_NAME: Final = re.compile(r"power|energy", re.IGNORECASE)
_UNIT_IN_NAME: Final = re.compile(r"[(\[ ](m?[WJ])[)\]]?$")
_SAMPLES: Final = {
    "t": pl.Int64, "value": pl.Float64, "source": pl.String, "kind": pl.String, "is_energy": pl.Boolean,
}  # fmt: skip
_STEP_ENERGY: Final = {
    "step": pl.Int64, "phase": pl.String, "tokens": pl.Int64, "took_ns": pl.Int64, "begin": pl.Int64,
    "end": pl.Int64, "is_folded": pl.Boolean, "kind": pl.String, "joules": pl.Float64,
}  # fmt: skip
_PHASE_SUMS: Final = {"phase": pl.String, "kind": pl.String} | dict.fromkeys(
    ("joules", "took_ns", "all_ns", "tokens"), pl.Float64
)


class PowerCounter(NamedTuple):
    """How a counter states power: of what, in which unit, and whether it counts joules since some start."""

    kind: str  # one of KINDS
    factor: float  # to watts, or to joules
    is_energy: bool


def parse_power_counter(name: str, unit: str | None) -> PowerCounter | None:
    """Parse what a counter says of power by its unit, else by its name; None if it says nothing."""
    if not _POWER_NAME.search(name):
        return None
    match = _UNIT_IN_NAME.search(name)
    unit = unit or _UNIT_BY_NAME.get(name) or (match and match[1])
    if unit not in _UNITS:
        return None
    words = name.lower()
    kind = "CPU" if any(word in words for word in ("cpu", "package", "rapl", "dram")) else "GPU"
    return PowerCounter(kind, *_UNITS[unit])


@cache_per_run
def _select_power_samples(run: Run) -> pl.DataFrame:
    """Return `t`, `value` in watts or joules, `source`, `kind`, `is_energy` of the power of a run's devices.

    Of a device with samples of power, its counter of energy is left out; so are devices without a kernel,
    where some have one. Each of merged ranks may have sampled all devices of its machine: those of its own
    kernels count, which no other rank is taken to use. Empty if the samples of one are missing.
    """
    none = pl.DataFrame(schema=_SAMPLES)
    if not all(map(run.has, ("value", "name", "t"))):
        return none
    parts = [rows for rows in map_chunks(run, "power", _select_chunk_samples) if rows is not None]
    if not parts:
        return none
    samples = pl.concat(parts)
    power_sources = samples.filter(~pl.col("is_energy"))["source"].unique()
    samples = samples.filter(~pl.col("is_energy") | ~pl.col("source").is_in(power_sources.implode()))
    named = _name_busy_devices(run)
    is_busy = pl.col("source").str.replace_all(" ", "").is_in(named)
    has_busy = named and samples.filter(is_busy).height
    if list_ranks(run):
        busy = samples.filter(is_busy)
        return busy if busy["source"].n_unique() == len(named) else none
    return samples.filter(is_busy | (pl.col("kind") != "GPU")) if has_busy else samples


def _select_chunk_samples(events: pl.DataFrame) -> pl.DataFrame | None:
    """Return the samples of power among some events; None without any."""
    counters = (events["kind"] == "counter").arg_true()
    if counters.is_empty():
        return None
    none = pl.lit(None, pl.String)
    texts = [
        (pl.col(c).cast(pl.String) if c in events.columns else none).alias(c)
        for c in ("name", "unit", "track")
    ]
    rows = events[counters].select("t", pl.col("value").cast(pl.Float64), *texts).drop_nulls(["t", "value"])
    pairs = rows.select("name", "unit").unique().rows()
    parsed = [(n, u, *p) for n, u in pairs if n and (p := parse_power_counter(n, u)) is not None]
    if not parsed:
        return None
    schema = {"name": pl.String, "unit": pl.String, "kind": pl.String, "factor": pl.Float64}
    table = pl.DataFrame(parsed, schema={**schema, "is_energy": pl.Boolean}, orient="row")
    rows = rows.join(table, on=("name", "unit"), nulls_equal=True, maintain_order="left")
    value = pl.col("value") * pl.col("factor")
    return rows.with_columns(value=value, source=pl.coalesce("track", "name")).select(*_SAMPLES)


def _name_busy_devices(run: Run) -> list[str]:
    """Name the devices with kernels, of merged ranks behind the rank, without spaces."""
    if not (run.has("track") and run.has("lens")):
        return []
    rows = run.events.lazy().filter(pl.col("kind") == "kernel", pl.col("lens") == "gpu")
    tracks = rows.select(pl.col("track").unique().drop_nulls()).collect()["track"].cast(pl.String)
    places = (track.rpartition(" / ") for track in tracks)
    return sorted({f"{rank}{slash}{parse_device(end)}".replace(" ", "") for rank, slash, end in places})


@cache_per_run
def compute_step_energy(run: Run) -> pl.DataFrame:
    """Return the steps with `kind` and `joules`: the power that was sampled, integrated over the step.

    Between two samples power changes linearly. Null for a step that is not between samples, and for folded
    ones, whose times are sums. Time in which several steps ran counts for the first. A run without steps is
    one row.
    """
    samples = _select_power_samples(run)
    if samples.is_empty():
        return pl.DataFrame(schema=_STEP_ENERGY)
    steps, parts = _list_steps(run), []
    for kind in KINDS:
        sources = samples.filter(kind=kind).partition_by("source", "is_energy")
        if sources:
            joules = [_integrate(part, steps["begin"], steps["end"]) for part in sources]
            total = pl.when(~pl.col("is_folded")).then(pl.sum_horizontal(*joules, ignore_nulls=False))
            parts.append(steps.with_columns(kind=pl.lit(kind), joules=total))
    return pl.concat(parts)


def _list_steps(run: Run) -> pl.DataFrame:
    """Return `step`, `phase`, `tokens`, `took_ns`, and `begin` and `end` without overlap, by begin."""
    columns = {
        "step": pl.Int64,
        "phase": pl.String,
        "tokens": pl.Int64,
        "t": pl.Int64,
        "took_ns": pl.Int64,
        "steps": pl.Int64,
    }
    if run.has("step"):
        steps = compute_step_durations(run).select(list(columns)).cast({"phase": pl.String})
    else:
        extent = pl.col("t").min(), ((pl.col("t") + pl.col("dur")).max() - pl.col("t").min()).alias("took_ns")
        steps = pl.DataFrame(schema=columns)
        if run.has("dur") and run.has("t"):
            steps = pl.concat([steps, select_timed(run, Look()).select(extent).collect()], how="diagonal")
    steps = steps.filter(pl.col("took_ns") > 0).sort("t")
    is_folded = (pl.col("steps") > 1).fill_null(value=False) | pl.col("t").is_null()
    end = pl.col("t") + pl.when(~is_folded).then("took_ns").otherwise(0)
    begin = pl.max_horizontal("t", end.cum_max().shift(1))
    steps = steps.with_columns(begin=begin, end=pl.max_horizontal(begin, end), is_folded=is_folded)
    took_ns = pl.when("is_folded").then("took_ns").otherwise(pl.col("end") - pl.col("begin"))
    return steps.with_columns(took_ns=took_ns).drop("t", "steps")


def _integrate(samples: pl.DataFrame, begins: pl.Series, ends: pl.Series) -> pl.Series:
    """Return the joules of one source from each begin to its end; null where samples are missing."""
    curve = _build_curve(samples)
    low, high = (_read_curve(curve, times.fill_null(0)) for times in (begins, ends))
    is_unbroken = low["piece"] == high["piece"]
    return pl.select(pl.when(is_unbroken).then(high["joules"] - low["joules"])).to_series()


def _build_curve(samples: pl.DataFrame) -> pl.DataFrame:
    """Return for each sample of a source: watts, watts at the next one, joules since the first, its piece.

    A piece ends where no sample came for long, and where a counter of energy starts anew.
    """
    rows = samples.sort("t").unique("t", keep="last", maintain_order=True)
    value, following = pl.col("value"), pl.col("value").shift(-1)
    seconds = (pl.col("t").shift(-1) - pl.col("t")) / 1e9
    if samples["is_energy"][0]:
        watts = (following - value) / seconds
        value, following = watts, watts
    rows = rows.select("t", watts=value, following=following, seconds=seconds)
    is_known = (pl.col("seconds") * 1e9 <= STALE_NS) & (pl.min_horizontal("watts", "following") >= 0)
    rows = rows.with_columns(is_known=is_known.fill_null(value=False))
    joules = pl.when("is_known").then((pl.col("watts") + pl.col("following")) / 2 * pl.col("seconds"))
    return rows.with_columns(
        start_joules=joules.fill_null(0.0).cum_sum().shift(1, fill_value=0.0),
        piece=(~pl.col("is_known")).cum_sum().shift(1, fill_value=0).cast(pl.Int64),
    )


def _read_curve(curve: pl.DataFrame, times: pl.Series) -> pl.DataFrame:
    """Return `joules` at each time since the first sample, and the `piece`; null outside of samples."""
    points = pl.DataFrame({"at": times}).with_row_index("row").sort("at")
    rows = points.join_asof(curve, left_on="at", right_on="t", strategy="backward").sort("row")
    since = (pl.col("at") - pl.col("t")) / 1e9
    slope = (pl.col("following") - pl.col("watts")) / pl.col("seconds")
    part = pl.col("watts") * since + slope * since**2 / 2
    joules = pl.when(since == 0).then(0.0).when("is_known").then(part) + pl.col("start_joules")
    return rows.select(joules=joules, piece="piece")


def sum_phase_energy(runs: Sequence[Run]) -> pl.DataFrame:
    """Return for each phase and kind of device: joules, time and tokens of the steps with known power.

    `all_ns` is the time of all its steps. Verified drafts are decoded.
    """
    steps = [pl.DataFrame(schema={"phase": pl.String, "kind": pl.String, "tokens": pl.Int64,
                                  "took_ns": pl.Int64, "joules": pl.Float64})]  # fmt: skip
    steps += [compute_step_energy(run).select(steps[0].columns) for run in runs]
    rows = pl.concat(steps).with_columns(pl.col("phase").replace("verify", "decode"))
    is_known = pl.col("joules").is_not_null()
    sums = [pl.col(c).filter(is_known).sum().alias(c) for c in ("joules", "took_ns", "tokens")]
    grouped = rows.group_by("phase", "kind", maintain_order=True).agg(*sums, all_ns=pl.col("took_ns").sum())
    return grouped.filter(pl.col("took_ns") > 0).select(
        pl.col(c).cast(kind) for c, kind in _PHASE_SUMS.items()
    )


def has_power(run: Run) -> bool:
    """Return whether the power of some device was sampled while a step ran."""
    return compute_step_energy(run)["joules"].count() > 0


def describe_energy(run: Run, price: Price | None) -> dict[str, str]:
    """Describe the energy of each kind of device per token and phase, and what tokens cost; by heading."""
    texts = {}
    sums = sum_phase_energy([run])
    for kind in KINDS:
        rows = list(sums.filter(kind=kind).iter_rows(named=True))
        if rows:
            texts[f"{kind} energy"] = f"{', '.join(map(_describe_phase, rows))} {_describe_basis(rows)}"
    if price is not None:
        costs = dict(_iter_costs([run], price))
        texts |= {f"cost, {phase}": f"{_format_cost(c, price)} per 1M tokens" for phase, c in costs.items()}
        if not costs:
            texts["cost"] = UNKNOWN_COST
    return texts


def _describe_phase(row: Mapping[str, float]) -> str:
    amount = f"{row['joules'] / row['tokens']:.4g} J/token" if row["tokens"] else f"{row['joules']:.4g} J"
    return amount + _name_phase(row["phase"])


def _name_phase(phase: object) -> str:
    return f" in {phase}" if phase else ""


def _describe_basis(rows: Sequence[Mapping[str, float]]) -> str:
    """Describe the mean power, and for how much of the time it is known unless for nearly all."""
    joules, took_ns, all_ns = (sum(row[c] for row in rows) for c in ("joules", "took_ns", "all_ns"))
    share = took_ns / all_ns
    some = "" if share >= _MOST_OF_TIME else f", sampled in {units.format_share(share)} of the time"
    return f"({joules / took_ns * 1e9:.4g} W{some})"


def _iter_costs(runs: Sequence[Run], price: Price) -> Iterator[tuple[str, float]]:
    """Yield each phase with tokens, and what a million of them cost by its mean rate over the runs."""
    phases = {p: None for run in runs for p in _list_token_phases(run)}
    for phase in phases:
        rates = [rate for run in runs if (rate := compute_phase_rate(run, phase))]
        if rates:
            yield phase, price.per_hour / 3600 / (sum(rates) / len(rates)) * 1e6


def _list_token_phases(run: Run) -> list[str]:
    """List the phases whose steps report tokens; decode for steps without a phase."""
    steps = compute_step_durations(run).filter(pl.col("tokens") > 0, pl.col("took_ns") > 0)
    phases = steps["phase"].cast(pl.String).fill_null("decode").replace("verify", "decode")
    return phases.unique(maintain_order=True).to_list()


def _format_cost(cost: float, price: Price) -> str:
    return f"{price.currency}{cost:.4g}"


def note_energy(sides: Sequence[tuple[str, Sequence[Run]]], price: Price | None) -> list[str]:
    """Return notes on J/token of each phase side by side, and on cost; none if no side knows its power.

    With a price it is said that power is unknown.
    """
    energy = list(_iter_energy_notes(sides))
    if price is None:
        return energy
    costs = list(_iter_cost_notes(sides, price)) or [f"cost: {UNKNOWN_COST}"]
    return [*energy, *costs, *([] if energy else ["energy: no power was recorded"])]


def _iter_energy_notes(sides: Sequence[tuple[str, Sequence[Run]]]) -> Iterator[str]:
    tables = [sum_phase_energy(runs).filter(pl.col("tokens") > 0) for _, runs in sides]
    tables = [table.select("kind", "phase", "joules", "tokens") for table in tables]
    per_token = [
        {(kind, phase): joules / tokens for kind, phase, joules, tokens in table.iter_rows()}
        for table in tables
    ]
    for key in dict.fromkeys(key for amounts in per_token for key in amounts):
        texts = [
            f"{label} {f'{amounts[key]:.4g} J/token' if key in amounts else 'no power known'}"
            for (label, _), amounts in zip(sides, per_token, strict=True)
        ]
        yield f"{key[0]} energy{_name_phase(key[1])}: {', '.join(texts)}"


def _iter_cost_notes(sides: Sequence[tuple[str, Sequence[Run]]], price: Price) -> Iterator[str]:
    costs = [dict(_iter_costs(runs, price)) for _, runs in sides]
    for phase in dict.fromkeys(phase for by_phase in costs for phase in by_phase):
        texts = [
            f"{label} {_format_cost(by_phase[phase], price) if phase in by_phase else 'unknown'}"
            for (label, _), by_phase in zip(sides, costs, strict=True)
        ]
        yield f"cost{_name_phase(phase)}: {', '.join(texts)} per million tokens at {price}"


def with_joules(table: pl.DataFrame, run: Run, look: Look) -> pl.DataFrame:
    """Return rows (`total_ns`) with `joules`: the steps' energy shared by time; unchanged if unknown."""
    watts = _compute_watts_of_rows(run, look)
    return table if watts is None else table.with_columns(joules=pl.col("total_ns") * watts / 1e9)


def note_joules(run: Run, table: pl.DataFrame) -> list[str]:
    """Return a note on the column `joules`; none if the table has none."""
    if JOULES not in table.columns:
        return []
    kinds = compute_step_energy(run).drop_nulls("joules")["kind"].unique(maintain_order=True)
    return [f"joules: the steps' energy ({' and '.join(kinds)}), shared among rows by their time"]


def _compute_watts_of_rows(run: Run, look: Look) -> float | None:
    """Return the joules for each second of a row: all rows together take the energy of their steps."""
    steps = compute_step_energy(run)
    if run.has("step") and not steps.is_empty():
        steps = steps.filter(is_requested_step(run, look))
    sums = steps.drop_nulls("joules").group_by("kind").agg(pl.col("joules", "took_ns").sum())
    rows_ns = compute_unfiltered_total(run, replace(look, per="step")) if sums.height else 0
    if not rows_ns:
        return None
    joules_per_ns = sums.select((pl.col("joules") / pl.col("took_ns")).sum()).item()
    took_ns = steps.group_by("kind").agg(pl.col("took_ns").sum())["took_ns"][0]
    return float(joules_per_ns * 1e9 * took_ns / rows_ns)
