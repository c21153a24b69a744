"""Find the line of the program that each operation of compiled code came from, by files of torch.compile.

With TORCH_COMPILE_DEBUG=1 Inductor writes `inductor_provenance_tracking_node_mappings.json`, nodes of each
kernel, and beside it `fx_graph_transformed.py`, the line of each node. It writes no nodes of a backward pass.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders._json_document import parse_document, read_dict
from capture.loaders.chrome.host_leaves import classify_cpu_op
from capture.source import Source

_REGION: Final = "## Call CompiledFxGraph"  # what begins the name of a range around compiled code
_CODE_FILES: Final = "model__*/output_code.py"  # of a run
_GRAPH_FILE: Final = "fx_graph_transformed.py"
_COMMENT: Final = re.compile(r"^\s*# .*?File: (?P<file>.+):(?P<line>\d+) in (?P<function>.+?), code: ")
_NODE: Final = re.compile(r'^\s+(?P<node>\w+)(?:: "[^"]*")? = torch\.ops\.\w+\.(?P<operator>\w+)')
_CALL: Final = re.compile(r"^(?P<name>.+):(?P<number>\d{1,9})$")  # a kernel, and the number of its call
_MODEL: Final = re.compile(r"^model__(\d{1,9})_")  # begins the name of a folder: the number of a graph
_PROCESS: Final = re.compile(r"-pid_(\d+)$")  # ends the name of a run's folder
_GRAPH_PREFIX: Final = re.compile(r"^graph_(\d{1,9})_(?=cpp_)")
_CALLED: Final = re.compile(r"^(?:extern_kernels\.|torch\.ops\.\w+\.)(\w+)(?:\.\w+)?$")
_MAX_TEXT: Final = 500


class CompiledGraph(NamedTuple):
    """The calls of one compiled graph in order: their names, and the line of each, None if unknown."""

    number: int | None
    names: tuple[str, ...]
    lines: tuple[str | None, ...]


def with_origins(
    kernels: pl.DataFrame, spans: pl.DataFrame, labels: pl.DataFrame, files: Sequence[Path], log: Log
) -> pl.DataFrame:
    """Add `origin_line`, as 'file.py(7): name', to what compiled code called: the line of most of its nodes.

    The calls of a region are those of the graph with the same calls in the same order; otherwise a kernel has
    the line on which all kernels of its name agree. `spans` have label, t, dur and thread.
    """
    processes = set(labels["device"])
    graphs = [graph for path in files if (graph := _read_graph(path, processes))]
    if not graphs:
        return kernels
    names, code = labels["name"].to_list(), _read_code_without_nodes(files)
    lines_by_label = [_find_line_of_name(name, graphs, code) for name in names]
    line = pl.Series(lines_by_label, dtype=pl.String)[kernels["label"]]
    regions = spans.filter(labels["name"].str.starts_with(_REGION)[spans["label"]])
    in_order = _find_lines_in_order(kernels, regions, names, graphs)
    line = pl.select(pl.coalesce(in_order, line).alias("origin_line")).to_series()
    if count := line.count():
        log.note(
            "compiled_origins", "lines of compiled operations are from files of torch.compile", count=count
        )
    return kernels.with_columns(line.cast(pl.Categorical()))


def _find_lines_in_order(
    kernels: pl.DataFrame, regions: pl.DataFrame, names: Sequence[str], graphs: Sequence[CompiledGraph]
) -> pl.Series:
    """Find the line of each kernel in a region whose calls are those of a graph; null for others."""
    # the time of a region's own is a span as well, which is shorter
    starts = regions.drop_nulls(["t", "dur"]).sort("t", "dur").with_row_index("region")
    starts = starts.select("region", "thread", host_t="t", end=pl.col("t") + pl.col("dur"))
    rows = kernels.select("label", "host_t", thread="host_thread").with_row_index("row")
    if "is_self_time" in kernels.columns:
        rows = rows.filter(kernels["is_self_time"].is_null())
    inside = rows.drop_nulls("host_t").sort("host_t").join_asof(
        starts, on="host_t", by="thread", check_sortedness=False
    ).filter(pl.col("host_t") < pl.col("end"))  # fmt: skip
    lines: list[str | None] = [None] * kernels.height
    lines_by_calls: dict[tuple[int, ...], Sequence[str | None]] = {}
    for _, region_rows, calls in inside.group_by("region").agg("row", "label").iter_rows():
        key = tuple(calls)
        if key not in lines_by_calls:
            lines_by_calls[key] = _find_lines_of_calls(key, names, graphs)
        for row, text in zip(region_rows, lines_by_calls[key], strict=False):
            lines[row] = text
    return pl.Series(lines, dtype=pl.String)


def _find_lines_of_calls(
    labels: Sequence[int], names: Sequence[str], graphs: Sequence[CompiledGraph]
) -> Sequence[str | None]:
    """Find the lines of the calls of a region; empty unless all graphs of these calls agree on them."""
    called = [_parse_name(names[label]) for label in labels]
    numbers = {number for number, _ in called if number is not None}
    calls = tuple(name for _, name in called)
    fitting = {
        graph.lines
        for graph in graphs
        if graph.names == calls and (graph.number is None or numbers <= {graph.number})
    }
    return fitting.pop() if len(fitting) == 1 else ()


def _find_line_of_name(name: str, graphs: Sequence[CompiledGraph], code: str) -> str | None:
    """Find the line of a generated kernel by its name alone; None if graphs disagree, or it is in `code`."""
    number, bare = _parse_name(name)
    if not bare.startswith(("triton_", "cpp_")) or bare in code:
        return None
    lines = {
        line
        for graph in graphs
        if number is None or graph.number in (None, number)
        for call, line in zip(graph.names, graph.lines, strict=True)
        if call == bare
    }
    return lines.pop() if len(lines) == 1 else None


def _read_code_without_nodes(files: Sequence[Path]) -> str:
    """Read the code of graphs whose nodes are not in files: a kernel there may have the name of another."""
    parts, folders = list[str](), {path.parent for path in files}
    for path in (path for run in {folder.parent for folder in folders} for path in run.glob(_CODE_FILES)):
        with suppress(UnreadableError, OSError):
            parts += [] if path.parent in folders else [Source.from_path(path).read_text()]
    return "\n".join(parts)


def _parse_name(name: str) -> tuple[int | None, str]:
    """Parse the name of an operation as number of its graph, if it has one, and what a graph calls it."""
    prefix = _GRAPH_PREFIX.match(name)
    return (int(prefix[1]), name[prefix.end() :]) if prefix else (None, name.rpartition("::")[2])


def _read_graph(path: Path, processes: set[str]) -> CompiledGraph | None:
    """Read the graph of a file; None if it is damaged, or of another process than the trace."""
    process = next(filter(None, (_PROCESS.search(parent.name) for parent in path.parents)), None)
    if process and process[1] not in processes:
        return None
    try:
        document = parse_document(Source.from_path(path))
        lines_by_node = _read_lines_by_node(Source.from_path(path.with_name(_GRAPH_FILE)).read_text())
    except (UnreadableError, OSError):
        return None
    calls: list[tuple[int, str, str | None]] = []
    for key, nodes in read_dict(document, "cppCodeToPost").items():
        if (call := _CALL.match(key)) and isinstance(nodes, list):
            lines = Counter(filter(None, map(lines_by_node.get, map(str, nodes))))
            name = _CALLED.sub(r"\1", call["name"])
            calls.append((int(call["number"]), name, next((line for line, _ in lines.most_common(1)), None)))
    model = _MODEL.match(path.parent.name)
    _, names, lines_of_calls = zip(*sorted(calls), strict=True) if calls else ((), (), ())
    return CompiledGraph(int(model[1]) if model else None, names, lines_of_calls)


def _read_lines_by_node(graph: str) -> dict[str, str]:
    """Read the line of each node of a printed graph that works, which is in a comment above it."""
    lines: dict[str, str] = {}
    line = ""
    for text in graph.split("\n"):
        if comment := _COMMENT.match(text):
            line = _format_line(comment)
        elif line and (node := _NODE.match(text)) and classify_cpu_op(f"aten::{node['operator']}") == "work":
            lines[node["node"]] = line
    return lines


def _format_line(match: re.Match[str]) -> str:
    file = os.path.normpath(match["file"])
    return clean(f"{file}({match['line']}): {match['function']}", _MAX_TEXT)
