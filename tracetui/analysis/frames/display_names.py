"""Display names: a name is chosen among all names of its runs, so that no filter, view or sort changes it."""

from collections.abc import Mapping, Sequence

import polars as pl

from capture import dense_lookup
from capture.native.schema import PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis.frames.run_memo import cache_per_run, list_distinct, map_chunks
from tracetui.glyphs import NAME_COLUMNS, format_display_name, is_unreadable, map_display_names


def map_kernel_names(runs: Sequence[Run]) -> Mapping[str, str]:
    """Map each kernel name of the runs to its display name; of several runs, among the names of all.

    Names that stay as they are map to themselves.
    """
    maps = [_map_names_of_run(run) for run in runs]
    if maps and all(names.keys() == maps[0].keys() for names in maps[1:]):
        return maps[0]
    return _map_names(sorted(set[str]().union(*maps)))


@cache_per_run
def _map_names_of_run(run: Run) -> Mapping[str, str]:
    if not run.has("name"):
        return {}
    chunks = map_chunks(run, "kernel names", _list_kernel_names)
    return _map_names(sorted({name for names in chunks for name in names}))


def _list_kernel_names(events: pl.DataFrame) -> list[str]:
    names = events["name"].filter(events["kind"] == "kernel")
    is_text = names.dtype == pl.Categorical
    distinct = dense_lookup.find_distinct(names) if is_text else names.unique().drop_nulls()
    return [name.lstrip(" ") for name in distinct.cast(pl.String).to_list()]


def _map_names(names: Sequence[str]) -> dict[str, str]:
    return dict(zip(names, names, strict=True)) | map_display_names(names)


def map_names_in(rows: pl.DataFrame, runs: Sequence[Run]) -> Mapping[str, str]:
    """Map the kernel names of the runs, and other names in the rows, such as scopes, to display names.

    Other names are chosen among all that the runs have, after those of kernels.
    """
    kernels = map_kernel_names(runs)
    others = {n for n in map(str.lstrip, list_names(rows)) if is_unreadable(n) and n not in kernels}
    if not others:
        return kernels
    candidates = sorted(others.union(*(_list_other_names(run) for run in runs)))
    display_names = map_display_names([*kernels, *candidates])
    return {**kernels, **{n: display_names[n] for n in others if n in display_names}}


@cache_per_run
def _list_other_names(run: Run) -> frozenset[str]:
    """Return the long names of everything but kernels: of spans, and of the scopes in paths."""
    names: set[str] = set()
    for column in ("name", "path"):
        values = list_distinct(run, column).cast(pl.String) if run.has(column) else pl.Series(dtype=pl.String)
        parts = values.str.split(PATH_SEPARATOR).explode(empty_as_null=False).unique()
        names.update(part for part in parts.drop_nulls().to_list() if is_unreadable(part))
    return frozenset(names)


def list_names(rows: pl.DataFrame) -> list[str]:
    """Return the distinct texts in the columns of names."""
    columns = [c for c in rows.columns if c in NAME_COLUMNS and rows.schema[c] in (pl.String, pl.Categorical)]
    distinct = (rows[c].unique(maintain_order=True).cast(pl.String).drop_nulls() for c in columns)
    return list(dict.fromkeys(text for values in distinct for text in values.to_list()))


def select_display_names(rows: pl.DataFrame, names: Mapping[str, str]) -> dict[str, str]:
    """Map the texts in the columns of names that change to their display names; indentation stays."""
    return {text: short for text in list_names(rows) if (short := _replace_name(text, names)) != text}


def _replace_name(text: str, names: Mapping[str, str]) -> str:
    name = text.lstrip(" ")
    return text.removesuffix(name) + names.get(name, name)


def with_short_names(rows: pl.DataFrame, runs: Sequence[Run]) -> pl.DataFrame:
    """Return the rows with `short`, the display name of each `name`."""
    kernels = map_kernel_names(runs)
    short = {name: format_name(name, kernels) for name in list_names(rows.select("name"))}
    return rows.with_columns(short=pl.col("name").cast(pl.String).replace(short))


def format_name(name: str, names: Mapping[str, str]) -> str:
    """Return the display name of one name, which may be none of a kernel."""
    return names.get(name) or format_display_name(name)
