"""Attribute backward ops to forward modules, by the sequence numbers of PyTorch's `emit_nvtx`.

On a GPU autograd runs backward on its own thread, with no module range around it. A backward op has the
sequence number of its forward op, so it belongs to the module of that op.
"""

from typing import Final

import polars as pl

from capture.classify.name_rules import find_phase
from capture.import_log import Log
from capture.native.schema import PATH_SEPARATOR

_ENGINE_NAME: Final = "autograd::engine::evaluate_function: "
_NODE_PATTERN: Final = r"(?:^|::)\w*Backward\d*$"
_OP_MARK: Final = "::"  # in the names of torch's own ranges, never in a module's


def reparent_backward_ops(
    ranges: pl.DataFrame, changes: pl.DataFrame, main_threads: pl.DataFrame, log: Log
) -> pl.DataFrame:
    """Move backward ranges below the module of their forward op; other ranges are unchanged.

    `changes` and `main_threads` are those of `NvtxScopes`.
    """
    nodes = _select_backward_nodes(ranges)
    if nodes.is_empty():
        return ranges
    node_by_range = _find_enclosing_nodes(ranges, nodes)
    owners = _find_owners(ranges.join(node_by_range, on="id", how="anti"))
    nodes = nodes.join(owners, on=["pid", "seq"], how="left")
    nodes = _join_main_thread_state(nodes, ranges, changes, main_threads)
    path_pairs = nodes.select("main_path", "owner_path").unique()
    prefixes = [_build_path_prefix(*pair) for pair in path_pairs.rows()]
    path_pairs = path_pairs.with_columns(prefix=pl.Series(prefixes, dtype=pl.String))
    nodes = nodes.join(path_pairs, on=["main_path", "owner_path"], how="left", nulls_equal=True)
    _note_owners(nodes, log)
    prefix_by_node = nodes.select("prefix", "main_step", node="id", outside="parent_path")
    ranges = ranges.join(node_by_range, on="id", how="left").join(prefix_by_node, on="node", how="left")
    return _apply_prefix(ranges)


def _select_backward_nodes(ranges: pl.DataFrame) -> pl.DataFrame:
    """Select the outermost ranges of backward ops: numbers inside may belong to another forward pass."""
    name = pl.col("name")
    is_node = name.str.contains(_NODE_PATTERN) & pl.col("seq").is_not_null()
    backward_ranges = ranges.filter(name.str.starts_with(_ENGINE_NAME) | is_node)
    backward_ranges = backward_ranges.sort("thread", "start", "ends", descending=[False, False, True])
    latest_end = pl.col("ends").cum_max().shift(1).over("thread")
    return backward_ranges.filter((pl.col("start") >= latest_end).fill_null(value=True))


def _find_enclosing_nodes(ranges: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Map each range inside a node to that node, the node itself included: id, node."""
    spans = nodes.select("thread", "start", until="ends", node="id").sort("start")
    joined = ranges.sort("start").join_asof(spans, on="start", by="thread", check_sortedness=False)
    return joined.filter(pl.col("start") < pl.col("until")).select("id", "node")


def _find_owners(forward: pl.DataFrame) -> pl.DataFrame:
    """Map pid, seq to the path around the forward op of that number.

    An op without gradient shows the number that the next op takes, so the last to begin is the owner. Numbers
    are per thread, so a number used by two threads has no owner.
    """
    numbered_ranges = forward.filter(pl.col("seq").is_not_null()).sort("start")
    last_by_number = numbered_ranges.group_by("pid", "seq").agg(
        pl.col("parent_path").last().fill_null("").alias("owner_path"), threads=pl.col("thread").n_unique()
    )
    return last_by_number.filter(pl.col("threads") == 1).drop("threads")


def _join_main_thread_state(
    nodes: pl.DataFrame, ranges: pl.DataFrame, changes: pl.DataFrame, main_threads: pl.DataFrame
) -> pl.DataFrame:
    """Add the path and step that the main thread of the process was in when each node began."""
    main_changes = changes.join(main_threads, on=["pid", "thread"], how="semi").drop("thread")
    range_state = ranges.select("id", main_path="path", main_step="step")
    main_changes = main_changes.rename({"t": "start"})
    nodes = nodes.sort("start").join_asof(main_changes, on="start", by="pid", check_sortedness=False)
    nodes = nodes.join(range_state, left_on="scope", right_on="id", how="left")
    on_main_thread = nodes.select("pid", "thread", "id").join(main_threads, on=["pid", "thread"], how="semi")
    is_on_main_thread = pl.col("id").is_in(on_main_thread["id"].implode())
    return nodes.with_columns(main_path=pl.when(is_on_main_thread).then("parent_path").otherwise("main_path"))


def _build_path_prefix(main_path: str | None, owner_path: str | None) -> str | None:
    """Join the waiting scopes of the main thread with the modules of the forward op."""
    main_scopes = main_path.split(PATH_SEPARATOR) if main_path else []
    owner_scopes = owner_path.split(PATH_SEPARATOR) if owner_path else []
    while owner_scopes and owner_scopes[0] in main_scopes:
        owner_scopes = owner_scopes[1:]
    ops = next((i for i, scope in enumerate(owner_scopes) if _OP_MARK in scope), len(owner_scopes))
    modules = owner_scopes[:ops]
    if modules and find_phase(modules[0]) == "forward":
        modules = modules[1:]
    return PATH_SEPARATOR.join((*main_scopes, *modules)) or None


def _note_owners(nodes: pl.DataFrame, log: Log) -> None:
    if owned_count := nodes["owner_path"].count():
        message = "backward ops attributed to the module of the forward op with their sequence number"
        log.note("backward_owners", message, count=owned_count)
    if ownerless_count := nodes.filter(pl.col("owner_path").is_null()).drop_nulls("seq").height:
        message = "backward ops whose forward op is not in the file"
        log.note("backward_strangers", message, count=ownerless_count)


def _apply_prefix(ranges: pl.DataFrame) -> pl.DataFrame:
    """Replace what surrounded each node by its prefix, in the paths of all ranges inside it."""
    is_inside_node = pl.col("node").is_not_null()
    length = pl.col("outside").str.len_chars().fill_null(0)
    skipped_length = pl.when(length > 0).then(length + len(PATH_SEPARATOR)).otherwise(0)

    def replace_prefix(column: str) -> pl.Expr:
        rest = pl.col(column).str.slice(skipped_length)
        rest = pl.when(rest.str.len_chars() > 0).then(rest)
        path = pl.concat_str("prefix", rest, separator=PATH_SEPARATOR, ignore_nulls=True)
        return pl.when(is_inside_node).then(pl.when(path.str.len_chars() > 0).then(path)).otherwise(column)

    return ranges.with_columns(
        path=replace_prefix("path"),
        parent_path=replace_prefix("parent_path"),
        outer_step=pl.coalesce("outer_step", "main_step"),
        step=pl.coalesce("step", "main_step"),
    ).drop("node", "prefix", "main_step", "outside")
