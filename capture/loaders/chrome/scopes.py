"""Which annotated scopes a kernel belongs to: those in which it was launched."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

import polars as pl

from capture.classify.names import layer_of, phase_of, roles_of_scopes
from capture.loaders.chrome.steps import last_before
from capture.native.schema import PATH_SEPARATOR

_MODULE: Final = "nn.Module: "
_MODULE_LAYER: Final = re.compile(r"nn\.Module: \w*(?:Layer|Block)_(\d{1,4})\b")


def is_scope(cat: str | None, name: str) -> bool:
    """Return whether this host row tells kernels apart: an annotation, a module, a phase, a layer."""
    if cat == "user_annotation":
        return True
    if cat == "python_function":
        return name.startswith(_MODULE)
    return layer_of(name) is not None or phase_of(name) is not None


def with_paths(kernels: pl.DataFrame, scopes: pl.DataFrame) -> pl.DataFrame:
    """Return kernels (with `at` and `by`) and the path of the scopes around their launch.

    `op` is the role that the path speaks of, `of_products` whether it says it of products only.
    """
    parts = []
    for (place,), mine in scopes.partition_by("place", as_dict=True).items():
        times, paths = _changes(mine)
        here = kernels.filter(pl.col("by") == place)
        index = last_before(pl.Series(times), here["at"])
        numbers = {path: number for number, path in enumerate(dict.fromkeys(paths))}
        which = pl.Series([numbers[path] for path in paths], dtype=pl.UInt32).gather(index)
        parts.append(here.with_columns(column.gather(which) for column in _spoken(list(numbers))))
    elsewhere = kernels.filter(~pl.col("by").is_in(scopes["place"].unique().implode()))
    return pl.concat([*parts, elsewhere], how="diagonal")


def _spoken(paths: Sequence[str | None]) -> list[pl.Series]:
    """Return each path with the layer that it names and the role that it speaks of."""
    roles = roles_of_scopes(paths)
    said = [roles.get(path or "") for path in paths]
    return [
        pl.Series("path", paths, dtype=pl.String).cast(pl.Categorical()),
        pl.Series("layer", [_module_layer(path) for path in paths], dtype=pl.Int32),
        pl.Series("op", [role and role.op for role in said], dtype=pl.String).cast(pl.Categorical()),
        pl.Series("of_products", [role and role.of_products for role in said], dtype=pl.Boolean),
    ]


@cache
def _module_layer(path: str | None) -> int | None:
    """Return a layer that only the counter in a module's name tells; others are read from the path later."""
    match = _MODULE_LAYER.search(path or "")
    return int(match[1]) if match else None


def _changes(scopes: pl.DataFrame) -> tuple[list[int], list[str | None]]:
    """Return when the innermost open scope of one thread changes, and to which path."""
    times: list[int] = []
    paths: list[str | None] = []
    ends: list[int] = []
    open_: list[str] = []

    def close() -> None:
        times.append(ends.pop())
        open_.pop()
        paths.append(open_[-1] if open_ else None)

    ordered = scopes.sort("t", "dur", descending=[False, True])
    for name, t, dur in zip(*(ordered[c].to_list() for c in ("name", "t", "dur")), strict=True):
        while ends and ends[-1] <= t:
            close()
        ends.append(min(t + dur, ends[-1]) if ends else t + dur)
        open_.append(open_[-1] + PATH_SEPARATOR + name if open_ else name)
        times.append(t)
        paths.append(open_[-1])
    while ends:
        close()
    return times, paths
