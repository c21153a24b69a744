"""Follow a server by its address: health, metrics, and periodic profiler windows."""

import sys
import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.loaders.requests.request_rows import LogFollower
from capture.watch.http_client import (
    KEY_HINT,
    HttpClient,
    HttpResponse,
    NoAnswerError,
    ServerAddress,
    read_extra_headers,
)
from capture.watch.prometheus import MetricReader
from capture.watch.server_metrics import MetricHistory
from capture.watch.server_profile import WindowSchedule
from capture.watch.server_windows import ServerWindows, is_local
from capture.watch.servers import ServerKind, load_kinds, select_first_model
from capture.watch.watch_recording import WatchRecording

METRICS_INTERVAL_S: Final = 1.0  # between two readings
HEALTH_INTERVAL_S: Final = 10.0  # between two checks, each of which may cost the server a token
REQUEST_TIMEOUT_S: Final = 3.0  # for one response
WINDOWS_EXIT_TIMEOUT_S: Final = 14.0  # for the windows thread to stop
FOLDER_TIMEOUT_S: Final = 2.0


class _UnsupportedServerError(Exception):
    """What a responding server lacks, as the end of a sentence."""


class ServerWatcher:
    """Follows one server until `over` is set."""

    def __init__(self, args: Namespace, over: threading.Event) -> None:
        self._args, self._over = args, over
        self._client = HttpClient(ServerAddress.from_url(args.url), read_extra_headers())
        address = str(self._client.address)
        plan = "none"
        if args.windows:
            plan = f"{args.steps} steps every {args.every:g} s, silent for {args.silence:.1%} of the time"
        meta = {"watched": "server", "server": address, "windows": plan}
        self._recording = WatchRecording(args.out, address, meta)
        self._logs = [LogFollower(p, p.stem if len(args.client_log) > 1 else "") for p in args.client_log]
        self._kind: ServerKind | None = None
        self._metrics: MetricHistory | None = None
        self._reader: MetricReader | None = None
        self._windows: ServerWindows | None = None
        self._alarm, self._health, self._last_note = "", "", ""
        self._health_checked_at = 0.0
        self._is_busy: bool | None = None  # whether the server has requests; None if unknown
        self._has_requests = False  # by the last reading

    def follow(self) -> None:
        """Write metrics, health and windows until asked to end."""
        while not self._over.is_set():
            start = time.monotonic()
            self._poll_server(start)
            self._write_requests()
            self._recording.keep_alive()
            self._over.wait(max(0.0, METRICS_INTERVAL_S - (time.monotonic() - start)))
        if self._windows is not None:
            self._windows.join(WINDOWS_EXIT_TIMEOUT_S)
            if why := self._windows.exit_warning:
                print(f"tracetui: {why}; POST /stop_profile ends it", file=sys.stderr, flush=True)
        self._write_requests()
        self._recording.end()

    def _write_requests(self) -> None:
        """Write the requests that clients have logged meanwhile."""
        for log in self._logs:
            for name, table in log.poll().items():
                self._recording.write_table(name, table)

    def _poll_server(self, now: float) -> None:
        try:
            metrics = self._client.get("/metrics", REQUEST_TIMEOUT_S)
            read_at = (now + time.monotonic()) / 2  # about: a busy server answers late
            if self._kind is None:
                self._identify_server(metrics)
                self._write_metrics(metrics, read_at)
                self._start_windows()
            else:
                self._write_metrics(metrics, read_at)
            self._check_health(now)
        except NoAnswerError as e:
            self._write_alarm(f"{self._client.address} does not answer: {e}; retrying")
        except _UnsupportedServerError as e:
            self._write_alarm(f"{self._client.address} {e}")
        else:
            self._write_alarm("")

    def _write_alarm(self, message: str) -> None:
        """Write a problem once when it starts, and once when it is over."""
        if message == self._alarm:
            return
        if self._windows is not None:
            self._windows.is_reachable = not message
            if not message:
                self._windows.reset_failures()
        self._alarm = message
        self._recording.mark(message or "over", "alarm")
        state = "waiting for" if message else "watching"
        self._recording.mark(f"{state} {self._client.address}", "status")

    def _identify_server(self, metrics: HttpResponse) -> None:
        """Find the kind of the server; raise _UnsupportedServerError if it is none of ours."""
        models = self._client.get("/v1/models", REQUEST_TIMEOUT_S)
        first = select_first_model(models.parse_json() if models.is_ok else None)
        owner = clean(str(first.get("owned_by", "")), 100).lower()
        lines = metrics.body[:200_000].decode("utf-8", "replace").split("\n")
        prefixes = {owner, *(line.partition(":")[0] for line in lines)}
        kind = next((k for k in load_kinds() if k.OWNER in prefixes), None)
        if kind is None:
            if refusals := [r.status for r in (metrics, models) if r.is_refusal]:
                raise _UnsupportedServerError(f"refuses all requests ({refusals[0]}): {KEY_HINT}")
            names = " nor ".join(k.NAME for k in load_kinds())
            why = f"judging by its responses ({metrics.status} to /metrics)"
            raise _UnsupportedServerError(f"is neither {names}, {why}")
        self._kind, self._metrics = kind, MetricHistory(kind.NAMES)
        self._reader = kind.create_reader()
        model = clean(str(first.get("id", "")), 300)
        self._recording.add_meta({"producer": kind.NAME, **({"model": model} if model else {})})

    def _start_windows(self) -> None:
        """Start the windows of a server whose metrics have been read: whether it has requests is known."""
        kind = self._kind
        if not self._args.windows or kind is None:
            self._recording.mark("windows are off: metrics only", "windows")
            return
        if not kind.HAS_PROFILER:
            self._recording.mark(f"no windows: {kind.NAME} has no profiler: metrics only", "windows")
            return
        writes_to_our_folder = kind.TAKES_FOLDER and is_local(self._client)
        folder = self._args.traces or (None if writes_to_our_folder else self._query_trace_folder())
        if folder is None and not writes_to_our_folder:
            message = "no windows: --traces DIR names the folder that the server's profiler writes to"
            self._recording.mark(message, "windows")
            return
        schedule = WindowSchedule(self._args.every, self._args.silence)
        steps, seconds = self._args.steps, self._args.windows
        self._windows = ServerWindows(
            self._client, kind, self._recording, folder, schedule, steps, seconds, self._over
        )
        self._windows.is_busy = self._is_busy
        self._windows.start()

    def _query_trace_folder(self) -> Path | None:
        """Return the trace folder that the server reports, if it exists here."""
        response = self._client.get("/server_info?config_format=json", FOLDER_TIMEOUT_S)
        folder = _find_key(response.parse_json() if response.is_ok else None, "torch_profiler_dir", 8)
        return Path(folder) if isinstance(folder, str) and folder and Path(folder).is_dir() else None

    def _write_metrics(self, response: HttpResponse, read_at: float) -> None:
        if self._kind is None or self._metrics is None or self._reader is None:
            return
        if not response.is_ok:
            flag = self._kind.METRICS_FLAG
            todo = f": start {self._kind.NAME} with {flag}" if flag else ""
            self._write_note_once(f"the server provides no metrics ({response.status}){todo}")
            return
        metrics = self._metrics.add_reading(self._reader(response.body), read_at)
        for metric in metrics:
            self._recording.counter(metric.name, metric.value, metric.unit, track=metric.track)
        requests = [metric.value for metric in metrics if metric.name.startswith("requests ")]
        had_requests, self._has_requests = self._has_requests, any(requests)
        self._is_busy = had_requests or self._has_requests if requests else None  # one step may end all
        if self._windows is not None:
            self._windows.is_busy = self._is_busy

    def _check_health(self, now: float) -> None:
        """Check the health now and then, and write it when it changes."""
        if now - self._health_checked_at < HEALTH_INTERVAL_S and self._health_checked_at:
            return
        self._health_checked_at = now
        try:
            response = self._client.get("/health", REQUEST_TIMEOUT_S)
            health = "healthy" if response.is_ok else f"not healthy ({response.status})"
        except NoAnswerError as e:
            health = f"health unknown ({e})"
        if health != self._health:
            self._health = health
            self._recording.mark(health, "health")

    def _write_note_once(self, message: str) -> None:
        if message != self._last_note:
            self._last_note = message
            self._recording.mark(message, "note")


def _find_key(document: object, key: str, depth: int) -> object:
    """Return the value of a key anywhere in a document, or None."""
    if not isinstance(document, dict) or not depth:
        return None
    if key in document:
        return document[key]
    return next((match for value in document.values() if (match := _find_key(value, key, depth - 1))), None)
