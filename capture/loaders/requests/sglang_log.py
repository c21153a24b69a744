"""SGLang's log of requests in JSON lines: times and tokens of each finished request.

Read: lines with `"event": "request.finished"`. Not read: prompts and outputs. The time of a line has no zone:
it is taken as the local time of this machine. Written after SGLang's source, not tried on the program.
https://docs.sglang.io/advanced_features/server_arguments.html
"""

from datetime import datetime
from typing import Any, Final

from capture.loaders.requests import request_rows
from capture.loaders.requests.request_rows import RequestRows, to_count, to_ns, to_text
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "sglang-log"
PRODUCER: Final = "SGLang's log of requests"
HOWTO: Final = "python -m sglang.launch_server … --log-requests --log-requests-format json"

_FINISHED: Final = "request.finished"
_RECEIVED: Final = "request.received"


def sniff(head: Head) -> bool:
    events = (line.get("event") for line in request_rows.iter_first_objects(head) if "rid" in line)
    return any(event in (_FINISHED, _RECEIVED) for event in events)


def load(source: Source) -> list[Run]:
    return request_rows.load_log(source, read_line)


def read_line(line: dict[str, Any], rows: RequestRows) -> bool:
    """Add a finished request; return whether the line is about a request."""
    if line.get("event") != _FINISHED:
        return line.get("event") == _RECEIVED
    out = line.get("out")
    facts = out.get("meta_info") if isinstance(out, dict) else None
    facts = facts if isinstance(facts, dict) else {}
    end_ns, total_ns = _read_time(line.get("timestamp")), to_ns(facts.get("e2e_latency"))
    reason = facts.get("finish_reason")
    name = to_text(line.get("rid"))
    rows.log.note("local_time", "times without a zone are taken as local times of this machine")
    rows.add_request(
        request=name, server_id=name, total_ns=total_ns,
        sent_ns=end_ns - total_ns if end_ns is not None and total_ns is not None else None,
        prompt_tokens=to_count(facts.get("prompt_tokens")), tokens=to_count(facts.get("completion_tokens")),
        queue_ns=to_ns(facts.get("queue_time")),
        outcome=to_text(reason.get("type") if isinstance(reason, dict) else reason),
    )  # fmt: skip
    return True


def _read_time(value: Any) -> int | None:
    try:
        return to_ns(datetime.fromisoformat(value).timestamp()) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
