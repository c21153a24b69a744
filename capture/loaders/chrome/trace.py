"""Load Chrome trace documents: PyTorch's profiler (Kineto), JAX, and other writers of `traceEvents`.

Read: an object with `traceEvents`, or a bare list of events, closed or not; complete events, begin and end,
counters, instants, memory, names of processes and threads; the step annotations of serving engines, and the
operands of the operator calls to which kernels refer by External id. Not read: flow arrows (correlation ids
say the same), sampled stacks, and `stackFrames`.
The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
PyTorch's: https://docs.pytorch.org/docs/stable/profiler.html
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from capture.errors import UnreadableError
from capture.loaders.chrome import compiled_reader, lenient_reader
from capture.loaders.chrome.trace_model import RefusedError, Trace
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "chrome-trace"
PRODUCER: Final = "PyTorch profiler, JAX, onnxruntime, viztracer, py-spy, other writers of Chrome traces"
HOWTO: Final = "torch.profiler.profile(...) … prof.export_chrome_trace('trace.json')"
_OBJECT: Final = re.compile(r'"traceEvents"\s*:')
_LIST: Final = re.compile(r'\[\s*\{[^\[\]]{0,4000}?"ph"\s*:\s*"\w"')
_LIST_OF_OBJECTS: Final = re.compile(r"\[\s*(?=\{)")
_DECODER: Final = json.JSONDecoder(strict=False)
TraceReader = Callable[[Source], Trace]


def sniff(head: Head) -> bool:
    if head.stripped_text.startswith("{"):
        return _OBJECT.search(head.text) is not None
    text = head.stripped_text
    return _LIST.match(text) is not None or _begins_with_event(text)


def _begins_with_event(text: str) -> bool:
    """Whether a text begins a list whose first element is an event, in whatever order its keys are."""
    begin = _LIST_OF_OBJECTS.match(text)
    try:
        event, _ = _DECODER.raw_decode(text, begin.end()) if begin else (None, 0)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and isinstance(event.get("ph"), str)


def load(source: Source) -> list[Run]:
    trace = read_document(source)
    count = trace.complete.rows.height + len(trace.others)
    if (trace.truncated and count < 2) or not (count or trace.header):
        cut, empty = "it ends within its first events", "traceEvents is empty or not a list"
        why = cut if trace.truncated else empty
        raise UnreadableError("contains no readable list of trace events", where=source.label, why=why)
    program = _read_program(source)
    run = convert_to_run(trace, source)
    return [replace(run, meta={**run.meta, **program})]


def _read_program(source: Source) -> dict[str, Any]:
    """Read the inputs of the program of JAX that ran, which only the profile next to its Chrome trace has."""
    if not source.reports:
        return {}
    from capture.loaders.xplane import read_program

    try:
        return read_program(source.reports[0])
    except (UnreadableError, OSError) as e:
        source.log.note("unread_report", f"the profile next to the trace is not read: {e}")
        return {}


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
