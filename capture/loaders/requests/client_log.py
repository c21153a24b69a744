"""A client's log of its requests in JSON lines, as `tracetui load` writes it; any client can.

    {"request": "9", "sent_s": 1795551769.146, "token_s": [0.331, 0.343], "prompt_tokens": 64}

`sent_s` is the Unix time of the request, `token_s` when each token came, in seconds after it. Optional:
`token_counts` (tokens that came together), `server_id` (the id of the response), `client` (which of several),
`outcome`. A line `{"stall_s": [start, seconds]}` is a time in which the client itself stood still; a line
`{"load": {…}}` describes the whole. Not read: the texts.
"""

from itertools import accumulate
from typing import Any, Final

from capture.loaders.requests import request_rows
from capture.loaders.requests.request_rows import RequestRows, to_count, to_ns, to_text
from capture.run import Run
from capture.source import Head, Source

FORMAT: Final = "client-log"
PRODUCER: Final = "tracetui load, or any client"
HOWTO: Final = "tracetui load http://127.0.0.1:8000 -o clients.jsonl"


def sniff(head: Head) -> bool:
    return any(
        {"sent_s", "token_s"} <= line.keys() or ("load" in line and "sent_s" in head.text)
        for line in request_rows.iter_first_objects(head)
    )


def load(source: Source) -> list[Run]:
    return request_rows.load_log(source, read_line)


def read_line(line: dict[str, Any], rows: RequestRows) -> bool:
    """Add what a line reports; return whether it does."""
    if isinstance(line.get("load"), dict):
        rows.meta.update(line["load"])
    elif isinstance(line.get("stall_s"), list):
        start_ns, *lengths = [to_ns(value) or 0 for value in line["stall_s"][:2]] or [0]
        rows.rows[request_rows.STALLS].append({"start_ns": start_ns, "end_ns": start_ns + sum(lengths)})
    elif "sent_s" in line:
        _read_request(line, rows)
    else:
        return False
    return True


def _read_request(line: dict[str, Any], rows: RequestRows) -> None:
    name, sent_ns = to_text(line.get("request")), to_ns(line.get("sent_s"))
    offsets, counts = _read_arrivals(line, rows)
    numbers = list(accumulate(counts))
    first, last = (offsets[0], offsets[-1]) if offsets else (None, None)
    rows.add_request(
        request=name, server_id=to_text(line.get("server_id")), client=to_text(line.get("client")),
        sent_ns=sent_ns, prompt_tokens=to_count(line.get("prompt_tokens")),
        outcome=to_text(line.get("outcome")), tokens=numbers[-1] if numbers else None, ttft_ns=first,
        decode_ns=None if first is None or last is None else last - first, total_ns=last,
    )  # fmt: skip
    if name and sent_ns is not None:
        rows.rows[request_rows.TOKENS] += [
            {"request": name, "token": number, "at_ns": sent_ns + offset, "tokens": count}
            for number, offset, count in zip(numbers, offsets, counts, strict=True)
        ]


def _read_arrivals(line: dict[str, Any], rows: RequestRows) -> tuple[list[int], list[int]]:
    """Return the arrivals in ns after the request and the tokens of each; both empty if they are wrong."""
    listed, counted = line.get("token_s"), line.get("token_counts")
    times = listed if isinstance(listed, list) else []
    numbers = counted if isinstance(counted, list) else [1] * len(times)
    offsets = [ns for value in times if (ns := to_ns(value)) is not None]
    counts = [n for value in numbers if (n := to_count(value)) is not None]
    if len(offsets) == len(times) == len(numbers) == len(counts) and sorted(offsets) == offsets:
        return offsets, counts
    rows.log.repair("bad_tokens", "requests whose tokens have no times, or not in order")
    return [], []
