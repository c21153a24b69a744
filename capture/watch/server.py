"""A server by its address: its health and its figures, and windows of its kernels now and then."""

import sys
import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import Final

from capture.text import clean
from capture.watch.figures import Figures
from capture.watch.http import HEADER, REFUSED, Address, Answer, Client, NoAnswerError, headers_of_environment
from capture.watch.profile import Duty
from capture.watch.prometheus import samples
from capture.watch.recording import Recording
from capture.watch.servers import Kind, kinds
from capture.watch.windows import Windows, is_local

EVERY_S: Final = 1.0  # between two readings of the metrics
HEALTH_S: Final = 10.0  # between two questions for its health, which may cost it a token
ANSWER_S: Final = 3.0  # that it may take to answer
LEAVE_S: Final = 14.0  # that the windows may take to leave the server
BEAT_S: Final = 3.0
FOLDER_S: Final = 2.0


class _StrangeServerError(Exception):
    """What a server that answers does not offer, as the end of a sentence."""


class Server:
    """Follows one server until `over`."""

    def __init__(self, args: Namespace, over: threading.Event) -> None:
        self._args, self._over = args, over
        self._client = Client(Address.of(args.url), headers_of_environment())
        self._duty = Duty(args.windows, args.every) if args.windows else None
        place = str(self._client.address)
        duty = f" ({args.windows / args.every:.1%} of the time)" if args.windows else ""
        plan = f"{args.windows:g} s every {args.every:g} s{duty}" if args.windows else "none"
        self._recording = Recording(args.out, place, {"watched": "server", "server": place, "windows": plan})
        self._kind: Kind | None = None
        self._figures: Figures | None = None
        self._windows: Windows | None = None
        self._alarm, self._health, self._told = "", "", ""
        self._asked_health = self._beat = 0.0

    def follow(self) -> None:
        """Write what the server tells until the end is asked for."""
        while not self._over.is_set():
            began = time.monotonic()
            self._look(began)
            if began - self._beat > BEAT_S:
                self._recording.mark("watching", "heartbeat")
                self._beat = began
            self._recording.flush()
            if why := self._recording.unwritten:
                print(f"tracetui: the recording has gaps: {why}", file=sys.stderr, flush=True)
            self._over.wait(max(0.0, EVERY_S - (time.monotonic() - began)))
        self._leave()

    def _leave(self) -> None:
        """End what was begun; say where the server may go on with it."""
        if self._windows is not None:
            self._windows.join(LEAVE_S)
            if why := self._windows.left_on:
                print(f"tracetui: {why}; POST /stop_profile ends it", file=sys.stderr, flush=True)
        self._recording.end()

    def _look(self, now: float) -> None:
        try:
            answer = self._client.get("/metrics", ANSWER_S)
            if self._kind is None:
                self._recognise(answer)
            self._take_metrics(answer, now)
            self._look_at_health(now)
        except NoAnswerError as e:
            self._raise_alarm(f"{self._client.address} does not answer: {e}; it is asked again and again")
        except _StrangeServerError as e:
            self._raise_alarm(f"{self._client.address} {e}")
        else:
            self._raise_alarm("")

    def _raise_alarm(self, words: str) -> None:
        """Say once what is wrong, and once that it is over."""
        if words == self._alarm:
            return
        if self._windows is not None:
            self._windows.reachable = not words
            if not words:
                self._windows.begin_anew()
        self._alarm = words
        self._recording.mark(words or "over", "alarm")
        self._recording.mark(f"{'waiting for' if words else 'watching'} {self._client.address}", "status")

    def _recognise(self, metrics: Answer) -> None:
        """Find out what the server is, begin its windows, and say what it does not offer."""
        models = self._client.get("/v1/models", ANSWER_S)
        told = models.json() if models.ok else None
        first = _first(told)
        owner = clean(str(first.get("owned_by", "")), 100).lower()
        said = {s.partition(":")[0] for s in metrics.body[:200_000].decode("utf-8", "replace").split("\n")}
        kind = next((k for k in kinds() if owner == k.OWNER or k.OWNER in said), None)
        if kind is None:
            refused = next((a.status for a in (metrics, models) if a.status in REFUSED), None)
            if refused:
                hint = f"{HEADER}='Authorization: Bearer KEY' sends a key with every request"
                raise _StrangeServerError(f"refuses every question ({refused}): {hint}")
            known = " nor ".join(k.NAME for k in kinds())
            raise _StrangeServerError(
                f"is neither {known}, as far as it tells ({metrics.status} to /metrics)"
            )
        self._kind, self._figures = kind, Figures(kind.NAMES)
        model = clean(str(first.get("id", "")), 300)
        self._recording.add({"producer": kind.NAME, **({"model": model} if model else {})})
        self._begin_windows(kind)

    def _begin_windows(self, kind: Kind) -> None:
        if self._duty is None:
            self._recording.mark("windows are off: figures only", "windows")
            return
        own = kind.TAKES_FOLDER and is_local(self._client)
        folder = self._args.traces or (None if own else self._stated_folder())
        if folder is None and not own:
            words = "no windows: --traces DIR names the folder that the server's profiler writes to"
            self._recording.mark(words, "windows")
            return
        self._windows = Windows(self._client, kind, self._recording, folder, self._duty, self._over)
        self._windows.start()

    def _stated_folder(self) -> Path | None:
        """Return the folder that the server says its traces go to, where it does and it is here."""
        told = self._client.get("/server_info?config_format=json", FOLDER_S)
        place = _find(told.json() if told.ok else None, "torch_profiler_dir", 8)
        return Path(place) if isinstance(place, str) and place and Path(place).is_dir() else None

    def _take_metrics(self, answer: Answer, now: float) -> None:
        if self._kind is None or self._figures is None:
            return
        if not answer.ok:
            flag = self._kind.METRICS_FLAG
            todo = f": start {self._kind.NAME} with {flag}" if flag else ""
            self._tell_once(f"the server shows no figures ({answer.status}){todo}")
            return
        read = samples(answer.body.decode("utf-8", "replace"), f"{self._kind.OWNER}:")
        figures = self._figures.take(read, now)
        for figure in figures:
            self._recording.counter(figure.name, figure.value, figure.unit, figure.track)
        if self._windows is not None:
            waits = [f.value for f in figures if f.name.startswith("requests ")]
            self._windows.busy = any(waits) if waits else None

    def _look_at_health(self, now: float) -> None:
        """Ask for the health now and then, and write it when it changed."""
        if now - self._asked_health < HEALTH_S and self._asked_health:
            return
        self._asked_health = now
        try:
            answer = self._client.get("/health", ANSWER_S)
            health = "healthy" if answer.ok else f"not healthy ({answer.status})"
        except NoAnswerError as e:
            health = f"of unknown health ({e})"
        if health != self._health:
            self._health = health
            self._recording.mark(health, "health")

    def _tell_once(self, words: str) -> None:
        if words != self._told:
            self._told = words
            self._recording.mark(words, "note")


def _first(told: object) -> dict[str, object]:
    """Return the first entry of a list of models; empty where there is none."""
    data = told.get("data") if isinstance(told, dict) else None
    first = data[0] if isinstance(data, list) and data else None
    return first if isinstance(first, dict) else {}


def _find(document: object, key: str, depth: int) -> object:
    """Return the value of a key, wherever in a document it stands; None where it does not."""
    if not isinstance(document, dict) or not depth:
        return None
    if key in document:
        return document[key]
    return next((found for value in document.values() if (found := _find(value, key, depth - 1))), None)
