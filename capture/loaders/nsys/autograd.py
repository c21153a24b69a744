"""Whose work a backward pass is, where PyTorch numbered its ops, as its emit_nvtx does.

On a GPU autograd goes back on a thread of its own, where no module stands around it. An op on the way back
has the sequence number of the op on the way forward that it answers, and so belongs where that one stood.
"""

from typing import Final

import polars as pl

from capture.classify.names import phase_of
from capture.importlog import Log
from capture.native.schema import PATH_SEPARATOR

_ENGINE: Final = "autograd::engine::evaluate_function: "
_NODE: Final = r"(?:^|::)\w*Backward\d*$"
_OP: Final = "::"  # in the names of torch's own ranges, and of no module


def led_through_modules(
    ranges: pl.DataFrame, moments: pl.DataFrame, homes: pl.DataFrame, log: Log
) -> pl.DataFrame:
    """Return nested ranges with their paths, those of the backward pass below the module that they belong
    to.
    """
    nodes = _nodes(ranges)
    if nodes.is_empty():
        return ranges
    inside = _inside(ranges, nodes)
    owners = _owners(ranges.join(inside, on="id", how="anti"))
    nodes = nodes.join(owners, on=["pid", "seq"], how="left").pipe(_at_home, ranges, moments, homes)
    pairs = nodes.select("home_path", "owner_path").unique()
    leads = [_lead(*pair) for pair in pairs.rows()]
    nodes = nodes.join(
        pairs.with_columns(lead=pl.Series(leads, dtype=pl.String)),
        on=["home_path", "owner_path"],
        how="left",
        nulls_equal=True,
    )
    _note(nodes, log)
    leaders = nodes.select("lead", "home_step", node="id", outside="parent_path")
    return _led(ranges.join(inside, on="id", how="left").join(leaders, on="node", how="left"))


def _nodes(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the outermost ranges of backward ops: what one holds may have numbers of another forward
    pass.
    """
    name = pl.col("name")
    is_engine = name.str.starts_with(_ENGINE) | (name.str.contains(_NODE) & pl.col("seq").is_not_null())
    some = ranges.filter(is_engine).sort("thread", "start", "ends", descending=[False, False, True])
    before = pl.col("ends").cum_max().shift(1).over("thread")
    return some.filter((pl.col("start") >= before).fill_null(value=True))


def _inside(ranges: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Return id, node: every range that lies in a node, the node itself included."""
    spans = nodes.select("thread", "start", until="ends", node="id").sort("start")
    placed = ranges.sort("start").join_asof(spans, on="start", by="thread", check_sortedness=False)
    return placed.filter(pl.col("start") < pl.col("until")).select("id", "node")


def _owners(forward: pl.DataFrame) -> pl.DataFrame:
    """Return pid, seq → the path around the forward op of that number.

    An op that needs no gradient shows the number that the next one takes: the last to begin is the owner.
    Numbers run by thread, so what two threads used belongs to neither.
    """
    numbered = forward.filter(pl.col("seq").is_not_null()).sort("start")
    last = numbered.group_by("pid", "seq").agg(
        pl.col("parent_path").last().fill_null("").alias("owner_path"), threads=pl.col("thread").n_unique()
    )
    return last.filter(pl.col("threads") == 1).drop("threads")


def _at_home(
    nodes: pl.DataFrame, ranges: pl.DataFrame, moments: pl.DataFrame, homes: pl.DataFrame
) -> pl.DataFrame:
    """Return nodes with the path and the step that their process's home thread was in when they began."""
    home = moments.join(homes, on=["pid", "thread"], how="semi").drop("thread")
    of_ranges = ranges.select("id", home_path="path", home_step="step")
    nodes = nodes.sort("start").join_asof(
        home, left_on="start", right_on="t", by="pid", check_sortedness=False
    )
    nodes = nodes.join(of_ranges, left_on="scope", right_on="id", how="left")
    here = nodes.select("pid", "thread", "id").join(homes, on=["pid", "thread"], how="semi")["id"]
    own = pl.col("id").is_in(here.implode())
    return nodes.with_columns(home_path=pl.when(own).then("parent_path").otherwise("home_path"))


def _lead(home: str | None, owner: str | None) -> str | None:
    """Return where the work stands: the phase that was waiting for it, then the modules of the forward op."""
    around = home.split(PATH_SEPARATOR) if home else []
    scopes = owner.split(PATH_SEPARATOR) if owner else []
    while scopes and scopes[0] in around:
        scopes = scopes[1:]
    ops = next((i for i, scope in enumerate(scopes) if _OP in scope), len(scopes))
    modules = scopes[:ops]
    if modules and phase_of(modules[0]) == "forward":
        modules = modules[1:]
    return PATH_SEPARATOR.join((*around, *modules)) or None


def _note(nodes: pl.DataFrame, log: Log) -> None:
    owned = nodes["owner_path"].count()
    if owned:
        message = "backward ops that were given the module of the forward op with the same sequence number"
        log.note("backward_owners", message, count=owned)
    strangers = nodes.filter(pl.col("seq").is_not_null() & pl.col("owner_path").is_null()).height
    if strangers:
        log.note("backward_strangers", "backward ops whose forward op is not in the file", count=strangers)


def _led(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ranges with the lead before their paths, in place of what stood around their node."""
    within = pl.col("node").is_not_null()
    skipped = pl.col("outside").str.len_chars().fill_null(0)
    skipped = pl.when(skipped > 0).then(skipped + len(PATH_SEPARATOR)).otherwise(0)

    def led(column: str) -> pl.Expr:
        rest = pl.col(column).str.slice(skipped)
        rest = pl.when(rest.str.len_chars() > 0).then(rest)
        whole = pl.concat_str("lead", rest, separator=PATH_SEPARATOR, ignore_nulls=True)
        return pl.when(within).then(pl.when(whole.str.len_chars() > 0).then(whole)).otherwise(column)

    return ranges.with_columns(
        path=led("path"),
        parent_path=led("parent_path"),
        outer_step=pl.coalesce("outer_step", "home_step"),
        step=pl.coalesce("step", "home_step"),
    ).drop("node", "lead", "home_step", "outside")
