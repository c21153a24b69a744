"""Spans of OpenTelemetry in JSON lines (OTLP, as the Collector's file exporter writes it): requests of vLLM.

Read: spans with the attributes `gen_ai.request.id`, `gen_ai.latency.*` and `gen_ai.usage.*`. Not read: other
spans, links between spans.
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/,
https://docs.vllm.ai/en/stable/examples/online_serving/opentelemetry.html
"""

from collections.abc import Iterator
from typing import Any, Final

from capture.loaders.requests import request_rows
from capture.loaders.requests.request_rows import RequestRows, to_count, to_ns, to_text
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "otel-spans"
PRODUCER: Final = "vLLM's spans, through an OpenTelemetry Collector"
HOWTO: Final = "vllm serve MODEL --otlp-traces-endpoint http://COLLECTOR:4318/v1/traces"

_SPANS: Final = "resourceSpans"
_LATENCY: Final = "gen_ai.latency."
_MARKS: Final = ("gen_ai.request.id", "gen_ai.response.id", f"{_LATENCY}e2e")  # of a request's span


def sniff(head: Head) -> bool:
    return head.stripped_text.startswith('{"resourceSpans"')


def load(source: Source) -> list[Run]:
    return request_rows.load_log(source, read_line)


def read_line(line: dict[str, Any], rows: RequestRows) -> bool:
    """Add the requests among the spans of a line; return whether the line has spans."""
    if _SPANS not in line:
        return False
    for span in _iter_spans(line):
        values = _read_attributes(span)
        if any(mark in values for mark in _MARKS):
            _read_request(span, values, rows)
        else:
            rows.log.note("other_spans", "spans of something else than a request")
    return True


def _read_request(span: dict[str, Any], values: dict[str, Any], rows: RequestRows) -> None:
    name = next((to_text(values[m]) for m in _MARKS[:2] if m in values), None) or to_text(span.get("spanId"))
    sent_ns, end_ns = (_read_unix_ns(span.get(key)) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    total_ns = to_ns(values.get(f"{_LATENCY}e2e"))
    if total_ns is None and sent_ns is not None and end_ns is not None and end_ns >= sent_ns:
        total_ns = end_ns - sent_ns
    usage = "gen_ai.usage."
    rows.add_request(
        request=name, server_id=name, sent_ns=sent_ns, total_ns=total_ns,
        prompt_tokens=to_count(values.get(f"{usage}prompt_tokens", values.get(f"{usage}input_tokens"))),
        tokens=to_count(values.get(f"{usage}completion_tokens", values.get(f"{usage}output_tokens"))),
        queue_ns=to_ns(values.get(f"{_LATENCY}time_in_queue")),
        prefill_ns=to_ns(values.get(f"{_LATENCY}time_in_model_prefill")),
        decode_ns=to_ns(values.get(f"{_LATENCY}time_in_model_decode")),
        ttft_ns=to_ns(values.get(f"{_LATENCY}time_to_first_token")),
    )  # fmt: skip


def _iter_spans(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in _list_objects(line, _SPANS):
        for scope in _list_objects(resource, "scopeSpans"):
            yield from _list_objects(scope, "spans")


def _list_objects(parent: dict[str, Any], key: str) -> list[dict[str, Any]]:
    members = parent.get(key)
    return [m for m in members if isinstance(m, dict)] if isinstance(members, list) else []


def _read_attributes(span: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes by key; a value is an object with one member, named by its type."""
    values = {}
    for pair in _list_objects(span, "attributes"):
        value = pair.get("value")
        if isinstance(value, dict) and isinstance(pair.get("key"), str):
            values[pair["key"]] = next(iter(value.values()), None)
    return values


def _read_unix_ns(value: Any) -> int | None:
    """Return a time in ns, which is written as text or number; None for what is none."""
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
    is_time = type(number) is int and 0 <= number < request_rows.MAX_SECONDS * 1e9
    return number if is_time else None
