"""Which step and which annotated scope a kernel belongs to: those in which it was launched."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

import polars as pl

from capture.enrich import layer_of, phase_of
from capture.events import PATH_SEPARATOR
from capture.loaders._chrome_form import relabel

_PROFILER_STEP: Final = re.compile(r"ProfilerStep#?\s*(\d{1,15})")
_NUMBERED_STEP: Final = re.compile(r"(?:\w*[_ ])?(?:step|iteration|iter)[_ #:]*(\d{1,15})", re.IGNORECASE)
_ANNOTATING: Final = ("user_annotation", "cpu_op", "Operator")
_MODULE: Final = "nn.Module: "
_MODULE_LAYER: Final = re.compile(r"nn\.Module: \w*(?:Layer|Block)_(\d{1,4})\b")
_NEVER: Final = -(1 << 63)


def step_numbers(frame: pl.DataFrame) -> pl.Series:
    """The step that an annotation opens: the profiler's own steps, else annotations that are numbered."""
    annotated = relabel(frame["cat"], _ANNOTATING.__contains__, pl.Boolean())
    for pattern in (_PROFILER_STEP, _NUMBERED_STEP):
        numbers = relabel(frame["name"], partial(_number, pattern), pl.Int64())
        if numbers.null_count() == numbers.len():
            continue
        numbers = pl.select(pl.when(annotated).then(numbers))[:, 0]
        if numbers.null_count() < numbers.len():
            return numbers
    return pl.Series([None], dtype=pl.Int64).new_from_index(0, frame.height)


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.fullmatch(name)
    return int(found[1]) if found else None


def steps_at(times: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """The number of the step that runs at each time, none between steps."""
    steps = steps.drop_nulls(["t", "dur"]).sort("t")
    index = steps["t"].search_sorted(times.fill_null(_NEVER), side="right").cast(pl.Int64) - 1
    index = pl.select(pl.when(index >= 0).then(index))[:, 0]
    end = (steps["t"] + steps["dur"]).gather(index)
    return pl.select(pl.when(times < end).then(steps["step"].gather(index)))[:, 0]


def launches(frame: pl.DataFrame) -> pl.DataFrame:
    """correlation → when and on which thread the host launched it."""
    return (
        frame.filter((pl.col("lens") == "host") & pl.col("correlation").is_not_null())
        .select("correlation", at="t", by="place")
        .unique("correlation", keep="any")
    )


def scopes(frame: pl.DataFrame) -> pl.DataFrame:
    """Host rows under whose names kernels are told apart: annotations, modules, phases, layers."""
    annotation = relabel(frame["cat"], lambda cat: cat == "user_annotation", pl.Boolean()).fill_null(False)
    python = relabel(frame["cat"], lambda cat: cat == "python_function", pl.Boolean()).fill_null(False)
    module = relabel(frame["name"], lambda name: name.startswith(_MODULE), pl.Boolean())
    speaking = relabel(frame["name"], _speaks, pl.Boolean())
    wanted = annotation | (python & module) | (~python & speaking)
    host = (pl.col("lens") == "host") & (pl.col("kind") == "span")
    rows = frame.lazy().select("place", "name", "t", "dur", "lens", "kind").filter(wanted).filter(host)
    return (
        rows.filter(pl.col("t").is_not_null() & (pl.col("dur") > 0))
        .select("place", "name", "t", "dur")
        .collect()
    )


def _speaks(name: str) -> bool:
    return layer_of(name) is not None or phase_of(name) is not None


def with_paths(kernels: pl.DataFrame, scopes: pl.DataFrame) -> pl.DataFrame:
    """Kernels (with `at` and `by`) and the path of the scopes around their launch."""
    parts = []
    for (place,), mine in scopes.partition_by("place", as_dict=True).items():
        times, paths = zip(*_changes(mine), strict=True)
        here = kernels.filter(pl.col("by") == place)
        index = pl.Series(times).search_sorted(here["at"].fill_null(_NEVER), side="right").cast(pl.Int64) - 1
        index = pl.select(pl.when(index >= 0).then(index))[:, 0]
        path = pl.Series(paths, dtype=pl.String).cast(pl.Categorical()).gather(index)
        parts.append(here.with_columns(path=path))
    elsewhere = kernels.filter(~pl.col("by").is_in(scopes["place"].unique().implode()).fill_null(False))
    parts.append(elsewhere.with_columns(path=pl.lit(None, dtype=pl.Categorical())))
    return with_layers(pl.concat(parts))


def with_layers(kernels: pl.DataFrame) -> pl.DataFrame:
    """Layers that only the counter in a module's name tells; the rest is read from the path later."""
    return kernels.with_columns(layer=relabel(kernels["path"], _module_layer, pl.Int32()))


def _module_layer(path: str) -> int | None:
    found = _MODULE_LAYER.search(path)
    return int(found[1]) if found else None


def _changes(scopes: pl.DataFrame) -> Iterator[tuple[int, str | None]]:
    """When the innermost open scope of one thread changes, and to which path."""
    stack: list[tuple[int, str]] = []
    rows = scopes.sort("t", "dur", descending=[False, True]).select(
        pl.col("name").cast(pl.String), "t", "dur"
    )
    for name, t, dur in rows.iter_rows():
        yield from _closed(stack, t)
        path, end = name, t + dur
        if stack:
            path, end = stack[-1][1] + PATH_SEPARATOR + name, min(end, stack[-1][0])
        stack.append((end, path))
        yield t, path
    yield from _closed(stack, None)


def _closed(stack: list[tuple[int, str]], now: int | None) -> Iterator[tuple[int, str | None]]:
    while stack and (now is None or stack[-1][0] <= now):
        end, _ = stack.pop()
        yield end, stack[-1][1] if stack else None
