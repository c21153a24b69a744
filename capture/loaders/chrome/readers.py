"""Read a Chrome trace with the C scanner if it supports the file, else with the lenient reader."""

from collections.abc import Callable

from capture.loaders.chrome import compiled_reader, lenient_reader
from capture.loaders.chrome.trace_model import RefusedError, Trace
from capture.source import Source

TraceReader = Callable[[Source], Trace]


def read_document(source: Source) -> Trace:
    """Read a trace document: an object with `traceEvents`, or a bare list of events."""
    return _read(source, compiled_reader.read_document, lenient_reader.read_document)


def read_lines(source: Source) -> Trace:
    """Read trace events written as JSON lines."""
    return _read(source, compiled_reader.read_lines, lenient_reader.read_lines)


def _read(source: Source, fast: TraceReader, lenient: TraceReader) -> Trace:
    saved_log = source.log.freeze().as_dict()
    try:
        return fast(source)
    except RefusedError:
        source.log = type(source.log).from_saved(saved_log)
        return lenient(source)
