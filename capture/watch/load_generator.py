"""Ask a server for completions as several clients do, and log when each token came.

A client asks again as soon as it has its answer. The log is that of `loaders/requests/client_log.py`.
"""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from capture.clean_text import clean
from capture.errors import EngineError
from capture.native.emit import read_clock_pair
from capture.watch.http_client import HttpClient, NoAnswerError, RefusalError
from capture.watch.servers import select_first_model

ANSWER_TIMEOUT_S: Final = 300.0  # without any token
MODELS_TIMEOUT_S: Final = 5.0
TICK_S: Final = 0.005  # between two looks at whether this process still runs
STALL_S: Final = 0.020  # of delay from which a tick counts as a stall of the client
MAX_FAILURES: Final = 5  # of a client in a row, after which all stop
_TOKEN_IDS: Final = (100, 1000)  # of prompts: every vocabulary has these, as common tokens
_FIELDS_UNKNOWN: Final = (400, 422)  # status of a server that does not understand a request


@dataclass(frozen=True)
class LoadPlan:
    """What is asked: so many clients, until so many requests were sent or the time is over."""

    clients: int
    requests: int
    seconds: float
    prompt_tokens: tuple[int, int]  # smallest and largest
    new_tokens: int
    seed: int


class LoadGenerator:
    """Loads one server from threads of this process until the plan is done or `over` is set."""

    def __init__(self, client: HttpClient, plan: LoadPlan, log: Path, model: str | None = None) -> None:
        self._client, self._plan, self._model = client, plan, model or ""
        self._numbers, self._lock = random.Random(plan.seed), threading.Lock()  # noqa: S311 - of prompts
        mono, unix = read_clock_pair()
        self._unix_offset_ns = unix - mono
        self._takes_token_ids = True
        self._log: IO[bytes] = log.open("ab")
        self.over = threading.Event()
        self.sent = self.answered = 0
        self.problem = ""  # of the last request that failed

    def run(self) -> None:
        """Send all requests; raise EngineError if the first one gets no answer."""
        with self._log:
            self._model = self._model or self._query_model()
            plan, address = self._plan, str(self._client.address)
            self._write({"load": {"producer": "tracetui load", "server": address, "model": self._model,
                                  "clients": plan.clients, "new_tokens": plan.new_tokens,
                                  "seed": plan.seed}})  # fmt: skip
            self._check_prompts()
            deadline = time.monotonic() + plan.seconds
            clients = [
                threading.Thread(target=self._ask_repeatedly, args=(n, deadline), daemon=True)
                for n in range(1, plan.clients + 1)
            ]
            for thread in clients:
                thread.start()
            self._note_stalls(clients)

    def _query_model(self) -> str:
        try:
            response = self._client.get("/v1/models", MODELS_TIMEOUT_S)
        except NoAnswerError as e:
            raise EngineError(f"{self._client.address} does not answer", why=str(e)) from None
        model = select_first_model(response.parse_json() if response.is_ok else None).get("id")
        if not isinstance(model, str):
            why = f"it responds with {response.status} to /v1/models"
            raise EngineError(f"{self._client.address} names no model", why=why, todo="name it with --model")
        return clean(model, 300)

    def _check_prompts(self) -> None:
        """Find out whether the server takes prompts as token ids; raise EngineError if it takes none."""
        try:
            self._try_prompt()
        except RefusalError as e:
            if e.status not in _FIELDS_UNKNOWN:
                raise EngineError("no request was answered", why=str(e)) from None
            self._takes_token_ids = False
            try:
                self._try_prompt()
            except NoAnswerError as second:
                raise EngineError("no request was answered", why=str(second)) from None
        except NoAnswerError as e:
            raise EngineError("no request was answered", why=str(e)) from None

    def _try_prompt(self) -> None:
        """Ask for one token, which is not logged."""
        for _ in self._client.stream("/v1/completions", self._build_body(4, 1), ANSWER_TIMEOUT_S):
            pass

    def _ask_repeatedly(self, client: int, deadline: float) -> None:
        failures = 0
        while time.monotonic() < deadline and not self.over.is_set() and failures < MAX_FAILURES:
            with self._lock:
                if self.sent >= self._plan.requests:
                    return
                self.sent += 1
                number, size = self.sent, self._numbers.randint(*self._plan.prompt_tokens)
                body = self._build_body(size, self._plan.new_tokens)
            failures = 0 if self._ask(number, client, body) else failures + 1
        if failures >= MAX_FAILURES:
            self.over.set()

    def _build_body(self, prompt_tokens: int, new_tokens: int) -> dict[str, Any]:
        numbers = [self._numbers.randrange(*_TOKEN_IDS) for _ in range(prompt_tokens)]
        prompt: object = numbers if self._takes_token_ids else " ".join(f"{n}" for n in numbers)
        return {
            "model": self._model, "prompt": prompt, "max_tokens": new_tokens, "temperature": 0,
            "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }  # fmt: skip

    def _ask(self, number: int, client: int, body: dict[str, Any]) -> bool:
        """Send a request and log it; return whether its answer came."""
        answer = _StreamedAnswer(time.monotonic_ns())
        outcome = None
        try:
            for line in self._client.stream("/v1/completions", body, ANSWER_TIMEOUT_S):
                answer.read_line(line, time.monotonic_ns())
                if self.over.is_set():
                    outcome = "cut"
                    break
        except NoAnswerError as e:
            outcome = self.problem = str(e)
        sent_ns = answer.sent_ns + self._unix_offset_ns
        fields = {"request": str(number), "client": client, "sent_s": sent_ns / 1e9, **answer.describe()}
        self._write({**fields, "outcome": outcome} if outcome else fields)
        self.answered += outcome is None
        return outcome is None

    def _note_stalls(self, clients: list[threading.Thread]) -> None:
        """Log when this process did not run, until all clients have ended."""
        before = time.monotonic()
        while any(thread.is_alive() for thread in clients):
            time.sleep(TICK_S)
            now = time.monotonic()
            if now - before > TICK_S + STALL_S:
                start_s = before + self._unix_offset_ns / 1e9
                self._write({"stall_s": [round(start_s, 6), round(now - before, 6)]})
            before = now

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._log.write(json.dumps(line).encode() + b"\n")
            self._log.flush()


class _StreamedAnswer:
    """When the tokens of one request came, from the lines of its answer."""

    def __init__(self, sent_ns: int) -> None:
        self.sent_ns = sent_ns
        self._times: list[float] = []
        self._counts: list[int] = []
        self._facts: dict[str, Any] = {}

    def read_line(self, line: bytes, now_ns: int) -> None:
        """Read one line of the answer, which came at this time."""
        if not line.startswith(b"data: {"):
            return
        try:
            chunk = json.loads(line[6:])
        except (ValueError, RecursionError):
            return
        self._facts.setdefault("server_id", str(chunk.get("id", "")))
        count = self._count_new_tokens(chunk)
        if count > 0:
            self._times.append(round((now_ns - self.sent_ns) / 1e9, 6))
            self._counts.append(count)

    def _count_new_tokens(self, chunk: dict[str, Any]) -> int:
        """Return the number of tokens in a chunk: by its count so far if it has one, else one."""
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._facts["prompt_tokens"] = usage.get("prompt_tokens")
            total = usage.get("completion_tokens")
            self._facts["tokens"] = total
            if not chunk.get("choices"):  # the last one, which repeats the counts
                return 0
            return total - sum(self._counts) if isinstance(total, int) else 1
        return sum(1 for choice in _iter_choices(chunk) if choice.get("text"))

    def describe(self) -> dict[str, Any]:
        """Return the fields of the log."""
        facts = {key: value for key, value in self._facts.items() if value is not None}
        return {"token_s": self._times, "token_counts": self._counts, **facts}


def _iter_choices(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choices = chunk.get("choices")
    yield from (c for c in choices if isinstance(c, dict)) if isinstance(choices, list) else ()
