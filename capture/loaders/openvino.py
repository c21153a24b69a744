"""Counters of OpenVINO's benchmark_app in JSON: the time of each node of a model.

Read: the nodes of each request (`-report_type detailed_counters`), whose last inference is a step, or of the
average of all (`average_counters`, `-pcsort`). Not read: CPU times, and the primitive that ran a node. The
same counters in CSV are a plain table.
OpenVINO: https://github.com/openvinotoolkit/openvino (tools/benchmark_tool, samples/cpp/benchmark_app)
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.loaders._json_document import parse_document, read_dict, read_dicts
from capture.loaders._typed_cells import MILLISECOND, build_frame, parse_nanoseconds
from capture.loaders.plain.generic_table import name_operators, note_requests, read_openvino_report
from capture.loaders.plain.table_layout import OPERATOR
from capture.run import Run, build_run, list_column_types
from capture.source import Head, Source

FORMAT: Final = "openvino"
PRODUCER: Final = "OpenVINO, in JSON"
HOWTO: Final = "benchmark_app -m model.xml -report_type detailed_counters -json_stats"
_DETAILED: Final = "detailed_performance"
_AVERAGE: Final = "avg_performance"
_SCHEMA: Final = {**list_column_types("name", "dur", "step"), OPERATOR: pl.String}


def sniff(head: Head) -> bool:
    is_report = f'"{_DETAILED}"' in head.text or f'"{_AVERAGE}"' in head.text
    return is_report and head.stripped_text.startswith("{") and '"nodes"' in head.text


def load(source: Source) -> list[Run]:
    document, log = parse_document(source, parse_float=str), source.log
    requests = read_dicts(document, _DETAILED) or [read_dict(document, _AVERAGE)]
    rows = list(_iter_nodes(requests))
    log.read = len(rows)
    if not rows:
        raise UnreadableError("is a report of OpenVINO without nodes", where=source.label)
    if len(requests) > 1:
        note_requests(len(requests), log)
    if len(rows) == 1 and _DETAILED not in document:
        message = "the average has one node: benchmark_app of Python writes no other into JSON; take CSV"
        log.note("one_node", message, severity="data_loss")
    events = name_operators(build_frame(rows, _SCHEMA, log))
    meta = {"producer": "OpenVINO", **read_openvino_report(source)}
    return [build_run(Path(source.label).name, meta, events, log)]


def _iter_nodes(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of all requests; of one alone without a step."""
    for number, request in enumerate(requests, 1):
        for node in read_dicts(request, "nodes"):
            yield {
                "name": node.get("name"),
                "dur": parse_nanoseconds(str(node.get("real_time")), MILLISECOND),
                "step": number if len(requests) > 1 else None,
                OPERATOR: node.get("node_type"),
            }
