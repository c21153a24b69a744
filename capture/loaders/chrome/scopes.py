"""Which step and which annotated scope a kernel belongs to: those in which it was launched."""

import re
from functools import cache
from typing import Final

import polars as pl

from capture.classify.names import layer_of, phase_of, role_of_scope
from capture.native.schema import PATH_SEPARATOR

_STEPS: Final = (
    re.compile(r"ProfilerStep#?\s*(\d{1,15})"),
    re.compile(r"(?:\w*[_ ])?(?:step|iteration|iter)[_ #:]*(\d{1,15})", re.IGNORECASE),
)
_ANNOTATING: Final = ("user_annotation", "cpu_op", "Operator")
_MODULE: Final = "nn.Module: "
_MODULE_LAYER: Final = re.compile(r"nn\.Module: \w*(?:Layer|Block)_(\d{1,4})\b")
_NEVER: Final = -(1 << 63)


def step_numbers(labels: pl.DataFrame) -> list[int | None]:
    """Return the step that each label opens: the profiler's own steps, else annotations that are numbered."""
    pairs = list(labels.select("cat", "name").iter_rows())
    for pattern in _STEPS:
        numbers = [_number(pattern, name) if cat in _ANNOTATING else None for cat, name in pairs]
        if any(number is not None for number in numbers):
            return numbers
    return [None] * len(pairs)


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match[1]) if match else None


def is_scope(cat: str | None, name: str) -> bool:
    """Return whether this host row tells kernels apart: an annotation, a module, a phase, a layer."""
    if cat == "user_annotation":
        return True
    if cat == "python_function":
        return name.startswith(_MODULE)
    return layer_of(name) is not None or phase_of(name) is not None


def steps_at(times: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Return the number of the step that runs at each time, none between steps."""
    steps = steps.drop_nulls(["t", "dur"]).sort("t")
    index = _last_before(steps["t"], times)
    end = (steps["t"] + steps["dur"]).gather(index)
    return pl.select(pl.when(times < end).then(steps["step"].gather(index)))[:, 0]


def with_launches(kernels: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Return kernels with the time `at` and the place `by` of their launch on the host, else their own."""
    launches = host.select("correlation", at="t", by="place")
    joined = kernels.join(launches, on="correlation", how="left")
    if joined.height > kernels.height:  # some correlation numbers have two host rows
        joined = kernels.join(launches.unique("correlation", keep="first"), on="correlation", how="left")
    return joined.with_columns(pl.col("at").fill_null(pl.col("t")), pl.col("by").fill_null(pl.col("place")))


def with_paths(kernels: pl.DataFrame, scopes: pl.DataFrame) -> pl.DataFrame:
    """Return kernels (with `at` and `by`) and the path of the scopes around their launch."""
    parts = []
    for (place,), mine in scopes.partition_by("place", as_dict=True).items():
        times, paths = zip(*_changes(mine), strict=True)
        here = kernels.filter(pl.col("by") == place)
        index = _last_before(pl.Series(times), here["at"])
        named = pl.Series(paths, dtype=pl.String)
        layers = pl.Series([_module_layer(path) for path in paths], dtype=pl.Int32).gather(index)
        roles = pl.Series([role_of_scope(path) for path in paths], dtype=pl.String).cast(pl.Categorical())
        path = named.cast(pl.Categorical()).gather(index)
        parts.append(here.with_columns(path=path, layer=layers, op=roles.gather(index)))
    elsewhere = kernels.filter(~pl.col("by").is_in(scopes["place"].unique().implode()))
    return pl.concat([*parts, elsewhere], how="diagonal")


def _last_before(sorted_times: pl.Series, times: pl.Series) -> pl.Series:
    """Return the index of the last of the sorted times that is not after each time, none before the first."""
    index = sorted_times.search_sorted(times.fill_null(_NEVER), side="right").cast(pl.Int64) - 1
    return pl.select(pl.when(index >= 0).then(index))[:, 0]


@cache
def _module_layer(path: str | None) -> int | None:
    """Return a layer that only the counter in a module's name tells; others are read from the path later."""
    match = _MODULE_LAYER.search(path or "")
    return int(match[1]) if match else None


def _changes(scopes: pl.DataFrame) -> list[tuple[int, str | None]]:
    """Return when the innermost open scope of one thread changes, and to which path."""
    changes: list[tuple[int, str | None]] = []
    stack: list[tuple[int, str]] = []
    ordered = scopes.sort("t", "dur", descending=[False, True])
    for name, t, dur in ordered.select("name", "t", "dur").rows():
        while stack and stack[-1][0] <= t:
            end, _ = stack.pop()
            changes.append((end, stack[-1][1] if stack else None))
        path, end = name, t + dur
        if stack:
            path, end = stack[-1][1] + PATH_SEPARATOR + name, min(end, stack[-1][0])
        stack.append((end, path))
        changes.append((t, path))
    while stack:
        end, _ = stack.pop()
        changes.append((end, stack[-1][1] if stack else None))
    return changes
