"""A client of a served model that keeps its own clock: when each token of each request came.

python -m tests.real.load URL CONCURRENCY PROMPT_TOKENS NEW_TOKENS OUT.json
"""

import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit


def run_before_others() -> None:
    """Let this process and those it starts have a processor at once, where the system allows it.

    Clients beside a server that keeps every processor busy wait for one, seconds long, and measure that wait:
    those of another machine do not.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def stream_completion(address: str, prompt: list[int], tokens: int) -> list[float]:
    """Return when a request began and when each of its tokens came, by this machine's clock."""
    connection = http.client.HTTPConnection(address, timeout=300)
    body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body["return_token_ids"] = True  # a server that is ahead of its clients sends several tokens at once
    times = [time.monotonic()]
    connection.request(
        "POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"}
    )
    for line in connection.getresponse():
        choices = json.loads(line[6:])["choices"] if line.startswith(b'data: {"') else []
        tokens_of = [choice.get("token_ids") for choice in choices]
        times += [time.monotonic()] * sum(1 if ids is None else len(ids) for ids in tokens_of)
    connection.close()
    return times


def main(url: str, concurrency: str, prompt: str, tokens: str, out: str) -> None:
    """Ask until SIGTERM comes, then write the times of all requests."""
    run_before_others()
    over, requests, numbers = threading.Event(), list[list[float]](), random.Random(0)
    signal.signal(signal.SIGTERM, lambda *_: over.set())

    def ask() -> None:
        while not over.is_set():
            words = [numbers.randrange(3, 8000) for _ in range(int(prompt))]
            requests.append(stream_completion(urlsplit(url).netloc, words, int(tokens)))

    threads = [threading.Thread(target=ask) for _ in range(int(concurrency))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(out, "w") as file:  # noqa: PTH123 - runs in any environment
        json.dump(requests, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
