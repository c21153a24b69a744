"""`tracetui load` against a server that streams at known times."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from capture.load_runs import load
from capture.loaders.requests.request_rows import REQUESTS
from tests.tracetui.in_process import tracetui
from tracetui.analysis.token_waits import build_token_table

FIRST_S, NEXT_S = 0.06, 0.03


class Streamer(BaseHTTPRequestHandler):
    """Streams four tokens; the class attributes say how it misbehaves."""

    takes_ids, counts, status = True, True, 200
    prompts: list[Any]

    def do_GET(self) -> None:
        self._send(200, json.dumps({"data": [{"id": "tiny", "owned_by": "vllm"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.prompts.append(body["prompt"])
        if self.status != 200 or (isinstance(body["prompt"], list) and not self.takes_ids):
            self._send(self.status if self.status != 200 else 400, b"wrong")
            return
        self.send_response(200)
        self.end_headers()
        for number in range(4):
            time.sleep(NEXT_S if number else FIRST_S)
            chunk: dict[str, Any] = {"id": "cmpl-1", "choices": [{"text": " w"}]}
            if self.counts:
                chunk["usage"] = {"prompt_tokens": 9, "completion_tokens": number + 1}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b'data: {"id": "cmpl-1", "choices": []}\n\ndata: [DONE]\n\n')

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def streaming(**behaviour: Any) -> Iterator[tuple[str, list[Any]]]:
    """Serve, and yield the address and the prompts that came."""
    prompts: list[Any] = []
    handler = type("Handler", (Streamer,), {**behaviour, "prompts": prompts})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", prompts
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("counts", [True, False])
def test_the_times_of_tokens_are_those_of_the_server(tmp_path: Path, counts: bool) -> None:
    out = tmp_path / "x.jsonl"
    with streaming(counts=counts) as (url, prompts):
        done = tracetui("load", url, "--requests", "6", "--clients", "3", "--prompt-tokens", "7:9", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "6 requests were answered" in done.stderr and "6 requests, 24 tokens" in done.stdout
    sizes = [len(prompt) for prompt in prompts[1:]]  # the first finds out what the server takes
    assert len(sizes) == 6 and set(sizes) <= {7, 8, 9}
    (run,) = load(out, cache=False)
    ttft = run.tables[REQUESTS]["ttft_ns"] / 1e9
    waits = build_token_table(run)["itl_ns"].drop_nulls() / 1e9
    assert ttft.min() >= FIRST_S and ttft.median() < FIRST_S + 0.1  # type: ignore[operator]
    assert waits.len() == 18
    assert float(waits.median()) == pytest.approx(NEXT_S, abs=0.02)  # type: ignore[arg-type]


def test_prompts_differ_from_run_to_run_unless_the_seed_is_given(tmp_path: Path) -> None:
    """A server caches prompts: one that it has seen costs it no prefill."""
    with streaming() as (url, prompts):
        runs: list[list[Any]] = []
        for number, seed in enumerate([(), (), ("--seed", "7"), ("--seed", "7")]):
            out = tmp_path / f"{number}.jsonl"
            done = tracetui("load", url, "--requests", "2", "--clients", "1", *seed, "-o", out)
            assert done.returncode == 0, done.stderr
            runs.append(prompts.copy())
            prompts.clear()
    assert all(a != b for a, b in zip(runs[0], runs[1], strict=True))
    assert runs[2] == runs[3]
    seeds = [load(tmp_path / f"{number}.jsonl", cache=False)[0].meta["seed"] for number in range(4)]
    assert seeds[0] != seeds[1] and seeds[2:] == [7, 7]


def test_a_server_without_token_ids_gets_words(tmp_path: Path) -> None:
    with streaming(takes_ids=False) as (url, prompts):
        done = tracetui("load", url, "--requests", "1", "--prompt-tokens", "5", "-o", tmp_path / "x.jsonl")
    assert done.returncode == 0
    assert len(prompts[-1].split()) == 5


def test_a_refusal_ends_it_and_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    with streaming(status=503) as (url, prompts):
        done = tracetui("load", url, "-o", out)
    assert done.returncode == 5 and "responds with 503: wrong" in done.stderr
    assert len(prompts) == 1 and not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("http://192.0.2.1:8000",), "--remote allows"),
        (("http://127.0.0.1:1", "--clients", "1000"), "use 1 to 256"),
        (("http://127.0.0.1:1", "--for", "3h"), "at most 60m"),
        (("http://127.0.0.1:1", "--prompt-tokens", "9:3"), "invalid range"),
        (("nonsense",), "invalid address"),
    ],
)
def test_what_is_not_allowed_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = tracetui("load", *arguments, "-o", tmp_path / "x.jsonl")
    assert done.returncode == 2 and words in done.stderr
    assert not list(tmp_path.iterdir())


def test_no_server_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = tracetui("load", "http://127.0.0.1:1", "-o", tmp_path / "x.jsonl")
    assert done.returncode == 5 and done.stderr.count("\n") == 1 and "does not answer" in done.stderr
