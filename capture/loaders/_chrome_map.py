"""From trace events to the event schema: kinds, lenses, tracks, steps, and what the header tells."""

from collections.abc import Callable
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._chrome_form import PLACE, Trace, complete_events, relabel
from capture.loaders._chrome_others import Names, names_in, other_rows, paired
from capture.loaders._chrome_scopes import launches, scopes, step_numbers, steps_at, with_paths
from capture.run import Run, build

# category, lower case → kind, lens, category of the row; host spans are the rest
_ROLES: Final[dict[str, tuple[str, str, str | None]]] = {
    "kernel": ("kernel", "gpu", None),
    "concurrent_kernel": ("kernel", "gpu", None),
    "mtia_ccp_events": ("kernel", "gpu", None),
    "gpu_memcpy": ("kernel", "gpu", "copy"),
    "gpu_memset": ("kernel", "gpu", "copy"),
    "memcpy": ("kernel", "gpu", "copy"),
    "memset": ("kernel", "gpu", "copy"),
    "gpu_user_annotation": ("span", "gpu", None),
    "cuda_sync": ("span", "wait", "wait"),
    "cuda_runtime": ("span", "host", "host"),
    "cuda_driver": ("span", "host", "host"),
    "runtime": ("span", "host", "host"),
    "mtia_runtime": ("span", "host", "host"),
    "python_function": ("span", "host", "host"),
    "overhead": ("span", "host", "host"),
    "trace": ("span", "host", "other"),
}
_HOST: Final = ("span", "host", None)
_OPS: Final = ("cpu_op", "Operator")
_FRAMES: Final = ("user_annotation", "Trace", "python_function")
_DEVICE: Final = "/device:"
_COLUMNS: Final = ("kind", "name", "t", "dur", "step", "lens", "track", "path", "layer", "category")


def to_run(name: str, trace: Trace, log: Log) -> Run:
    """A run from a trace as it was read."""
    names = names_in(trace.others)
    pairs = paired(trace.others, log)
    frame = pl.concat([trace.complete, complete_events(pairs, log)]) if pairs else trace.complete
    rows = _attributed(_classified(frame, names, log))
    rows = rows.with_columns(track=_tracks(rows, names))
    rows = rows.select(c for c in _COLUMNS if c in rows.columns)
    rest = other_rows(trace.others, log)
    if rest.height:
        rows = pl.concat([rows, rest.cast({pl.String: pl.Categorical()})], how="diagonal")
    header = trace.header
    tables = {"trace": _header_table(header, log.read), "devices": _devices(header)}
    return build(
        name, _meta(trace, names), _based(rows, header), log, {k: t for k, t in tables.items() if t.width}
    )


def _role(index: int) -> Callable[[str], str | None]:
    return lambda cat: _ROLES.get(cat.lower(), _HOST)[index]


def _classified(frame: pl.DataFrame, names: Names, log: Log) -> pl.DataFrame:
    """Every complete event with its kind, lens and category."""
    frame = frame.with_columns(
        kind=relabel(frame["cat"], _role(0)).fill_null("span"),
        lens=relabel(frame["cat"], _role(1)).fill_null("host"),
        category=relabel(frame["cat"], _role(2)),
    )
    if not (frame["kind"] == "kernel").any():
        frame = _on_named_devices(frame, names)
    if frame.height and not (frame["kind"] == "kernel").any():
        log.note("leaf_ops", "no device kernels in this trace: its innermost host operations stand for them")
        frame = _leaves_as_kernels(frame)
    return frame


def _on_named_devices(frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Traces without categories (JAX) tell devices by their processes' names, kernels by their threads'."""
    devices = {pid for pid, name in names.processes.items() if name.startswith(_DEVICE)}
    on_device = relabel(frame["place"], lambda p: p.partition(PLACE)[0] in devices, pl.Boolean())
    streams = relabel(frame["place"], lambda p: names.threads.get(p, "").startswith("Stream"), pl.Boolean())
    return frame.with_columns(
        kind=pl.when(on_device & streams).then(pl.lit("kernel")).otherwise("kind").cast(pl.Categorical()),
        lens=pl.when(on_device).then(pl.lit("gpu")).otherwise("lens").cast(pl.Categorical()),
    )


def _leaves_as_kernels(frame: pl.DataFrame) -> pl.DataFrame:
    """Operations with none inside them on their thread become the leaf rows."""
    cat = pl.col("cat").cast(pl.String)
    ops = cat.is_in(_OPS)
    if not frame.select(ops.any()).item():
        ops = ~cat.is_in(_FRAMES).fill_null(False)
    end = pl.col("t") + pl.col("dur")
    inner = (
        frame.select(
            "t", "dur", pl.col("place").to_physical(), row=pl.int_range(pl.len()), op=ops.fill_null(False)
        )
        .filter(pl.col("op") & pl.col("dur").is_not_null())
        .sort("place", "t", "dur", descending=[False, False, True])
        .with_columns(holds=(pl.col("t").shift(-1) < end) & (pl.col("place").shift(-1) == pl.col("place")))
        .filter(~pl.col("holds").fill_null(False))
    )
    leaf = pl.int_range(pl.len()).is_in(inner["row"].implode()) | (
        ops.fill_null(False) & pl.col("dur").is_null()
    )
    return frame.with_columns(
        kind=pl.when(leaf).then(pl.lit("kernel")).otherwise("kind").cast(pl.Categorical())
    )


def _attributed(frame: pl.DataFrame) -> pl.DataFrame:
    """Steps become step rows; kernels get the step and the scopes of their launch, the rest its own."""
    number = step_numbers(frame)
    is_step = number.is_not_null()
    steps = frame.filter(is_step).select("t", "dur", step=number.drop_nulls())
    if steps.height:
        frame = frame.with_columns(
            step=number,
            kind=pl.when(is_step).then(pl.lit("step")).otherwise("kind").cast(pl.Categorical()),
            lens=pl.when(is_step).then(pl.lit("wall")).otherwise("lens").cast(pl.Categorical()),
        )
    around = scopes(frame)
    if steps.is_empty() and around.is_empty():
        return frame
    is_kernel = frame["kind"] == "kernel"
    known, frame = launches(frame), frame.drop("cat")
    kernels = frame.filter(is_kernel).join(known, on="correlation", how="left")
    kernels = kernels.with_columns(
        pl.col("at").fill_null(pl.col("t")), pl.col("by").fill_null(pl.col("place"))
    )
    kernels = with_paths(kernels, around) if around.height else kernels
    parts = [_with_steps(kernels, "at", steps), _with_steps(frame.filter(~is_kernel), "t", steps)]
    return pl.concat([part.drop("correlation") for part in parts], how="diagonal")


def _with_steps(rows: pl.DataFrame, at: str, steps: pl.DataFrame) -> pl.DataFrame:
    if steps.is_empty():
        return rows
    return rows.with_columns(step=pl.coalesce("step", steps_at(rows[at], steps)))


def _tracks(frame: pl.DataFrame, names: Names) -> pl.Series:
    gpu = relabel(frame["place"], lambda place: _stream(place, names))
    host = relabel(frame["place"], lambda place: _thread(place, names))
    return frame.select(
        pl.when(pl.col("lens").is_in(["gpu", "wait"])).then(gpu).otherwise(host).alias("track")
    )["track"]


def _stream(place: str, names: Names) -> str:
    pid, _, tid = place.partition(PLACE)
    device = names.processes.get(pid, "")
    if device.startswith(_DEVICE):
        return f"{device.removeprefix(_DEVICE).lower().replace(':', '')}/{names.threads.get(place, tid)}"
    return f"gpu{pid}/stream{tid.removeprefix('stream').strip()}"


def _thread(place: str, names: Names) -> str:
    pid, _, tid = place.partition(PLACE)
    told = names.threads.get(place, "")
    if told and tid in told:
        return told
    return f"{pid}/{told or 'thread'} {tid}" if told else f"{pid}/{tid}"


def _based(rows: pl.DataFrame, header: dict[str, Any]) -> pl.DataFrame:
    """Starts on the clock of the epoch where the trace states its base."""
    base = header.get("baseTimeNanoseconds")
    latest = rows["t"].max()
    if type(base) is not int or not isinstance(latest, int) or not 0 < base < (1 << 63) - 1 - max(latest, 0):
        return rows
    return rows.with_columns(pl.col("t") + base)


def _meta(trace: Trace, names: Names) -> dict[str, Any]:
    header = trace.header
    ranks = header.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    meta = {
        "producer": _producer(trace, names),
        "device": ", ".join(
            sorted(set(_devices(header).get_column("name", default=pl.Series([], dtype=pl.String))))
        ),
        "driver": header.get("cuda_driver_version") or header.get("hip_driver_version"),
        "rank": ranks.get("rank"),
        "world_size": ranks.get("world_size"),
        "clock_base_ns": header.get("baseTimeNanoseconds"),
        "profiled": True,
        "truncated": trace.truncated or None,
    }
    return {k: v for k, v in meta.items() if v is not None and v != ""}


def _producer(trace: Trace, names: Names) -> str:
    if any(name.startswith(_DEVICE) for name in names.processes.values()):
        return "JAX profiler"
    cats = set(trace.complete["cat"].unique().cast(pl.String))
    torch = "schemaVersion" in trace.header or cats & {"cpu_op", "cuda_runtime", "user_annotation"}
    return "PyTorch profiler" if torch else "Chrome trace"


def _devices(header: dict[str, Any]) -> pl.DataFrame:
    told = header.get("deviceProperties")
    rows = [
        {
            "id": d.get("id"),
            "name": str(d.get("name")),
            "memory_bytes": d.get("totalGlobalMem"),
            "sms": d.get("numSms"),
        }
        for d in (told if isinstance(told, list) else ())
        if isinstance(d, dict)
    ]  # fmt: skip
    return pl.DataFrame(rows, strict=False)


def _header_table(header: dict[str, Any], read: int) -> pl.DataFrame:
    """What the trace states about itself, word for word."""
    told = {k: str(v) for k, v in header.items() if isinstance(v, str | int | float)}
    told["events"] = str(read)
    return pl.DataFrame({"key": list(told), "value": list(told.values())})
