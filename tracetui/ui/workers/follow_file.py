"""Follow a growing file in a thread: post its runs, and the state of its writer, to the screen."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.errors import CaptureError, EngineError
from capture.launch_archive import MAX_LAUNCHES
from capture.run import LiveRun, Run
from tracetui.analysis import recent_stats
from tracetui.analysis.frames import selection
from tracetui.analysis.vitals import ALERT_OVER
from tracetui.process import BundledEngine, EngineProcess, UserProgram, WatchProcess
from tracetui.ui.messages import LoadFailed, ProgressChanged, RunsChanged, StatusMessage
from tracetui.ui.run_info import describe_run
from tracetui.ui.workers.feed import LIVE_BADGE, LoadProgress, Post
from tracetui.views import find_missing_needs, load_view

MOST_NOTES: Final = 1 << 12  # counted at most
TEXT_PIECES: Final = 40  # for the status line
WORK_KINDS: Final = ("kernel", "step", "span")  # kinds of events that views show
BETWEEN_BADGE: Final = "program runs"
BADGES: Final = {"ended": "ended", "deleted": "file deleted", "quiet": "no data"}
NEXT_MODES: Final = {"spans": "windows", "windows": "continuous", "continuous": "spans"}
POLL_INTERVAL_S: Final = 0.01  # between two looks at the file
REDRAW_INTERVAL_S: Final = 0.25  # between two redraws, if these are cheap
STEP_WAIT_S: Final = 0.1  # a redraw that is due waits so long for a new step
COST_FACTOR: Final = 10  # redraws take at most one part in so many of a core
COST_REDRAWS: Final = 8  # redraws over which their cost is averaged
MOST_INTERVAL_S: Final = 0.5  # between two redraws, whatever they cost


class FileFollower:
    """A feed that follows a file from `start` until `stop`, with the engine that writes it."""

    def __init__(
        self,
        path: str | Path,
        engine: EngineProcess | None = None,
        view: str = "summary",
        comparison_runs: Sequence[Run] = (),
        fallback_view: str | None = None,
    ) -> None:
        """Post `comparison_runs` before the runs of the file.

        The first view is `view`, or `fallback_view` if the first run has no data for that.
        """
        from capture.native.tail import FileTail  # loaded for a growing file only

        self.engine = engine
        self.badge = ""  # state of the writer, for the header
        self.model_text = ""  # the last text of the model
        self._view, self._fallback_view = view, fallback_view
        self._comparison_runs = [(run, describe_run(run)) for run in comparison_runs]
        self._tail = FileTail(path, archived_launches=MAX_LAUNCHES)
        self._previous: LiveRun | None = None  # the last snapshot that was posted
        self._activity = _describe_start(engine)
        self._start_time_s = time.monotonic()
        self._is_over = threading.Event()
        self._has_posted = self._has_posted_nothing = False
        self._alarm = ""  # the engine hangs or has died
        self._reported_alarm = ""  # reported in the file, by the watch process
        self._present_alarm = ""  # the last seconds differ from the minute before
        self._gap_warning = ""  # the last one of the engine
        self._is_restarting = False  # a new engine has not reached its first step
        self._mode = ""  # capture mode of the engine, if known
        self._posted_notes = 0

    def start(self, post: Post) -> None:
        threading.Thread(target=self._watch, args=(post,), name="following", daemon=True).start()

    def stop(self) -> None:
        self._is_over.set()

    def describe_progress(self) -> LoadProgress:
        return LoadProgress(time.monotonic() - self._start_time_s, self._activity, alarm=self._alarm)

    @property
    def alarm(self) -> str:
        """What is wrong with a running engine, or unusual now; empty if nothing is."""
        return self._alarm or self._present_alarm

    @property
    def is_listening(self) -> bool:
        """Whether our engine runs and accepts orders."""
        return self.engine is not None and self.engine.is_running

    def restart(self) -> None:
        """Start the engine again after its end. Raise EngineError if that fails."""
        if self.engine is not None:
            self._tail.reset_silence_timer()
            self._activity, self._alarm, self._mode = _describe_start(self.engine), "", ""
            self.engine.start()

    def send_order(self, what: Mapping[str, Any]) -> bool:
        """Send an order to the engine; return whether it was sent."""
        return self.engine is not None and self.engine.send(what)

    def request_next_mode(self) -> str | None:
        """Ask the engine for the next capture mode; return its name, or None if nobody listens."""
        mode = NEXT_MODES.get(self._mode, "windows")
        if not self.send_order({"do": "mode", "mode": mode}):
            return None
        self._mode = mode
        return mode

    def _watch(self, post: Post) -> None:
        """Post until `stop`, also the last bytes of an engine that has died."""
        scheduler = RedrawScheduler()
        try:
            while not self._is_over.is_set():
                dead = self.engine is not None and not self.engine.is_running
                last = dead and not self.badge.startswith("engine")
                if scheduler.is_due(self._tail.poll()) or last:
                    growing = not dead and self._tail.state == "growing"
                    self._post_runs(self._tail.build_runs(is_final=dead), post, growing=growing)
                    scheduler.record_redraw(leisurely=self._has_posted)
                self._post_state(dead, post)
                self._post_nothing(dead, post)
                self._post_alarm(dead, post)
                self._post_gap_warning(post)
                self._is_over.wait(POLL_INTERVAL_S if self._tail.is_behind else scheduler.compute_wait())
        except CaptureError as e:
            post(LoadFailed(e) if not self._has_posted else StatusMessage(str(e)))

    def _post_runs(self, runs: list[LiveRun], post: Post, *, growing: bool) -> None:
        """Post the runs that have something to show; before that, what the engine is doing."""
        if not runs:
            return
        marks = _select_log_lines(runs[-1])
        before, self._activity = self._activity, "".join(_list_newest(marks, "status", 1)) or self._activity
        if self._activity != before:
            post(ProgressChanged())
        self.model_text = "".join(_list_newest(marks, "text", TEXT_PIECES))
        self._reported_alarm = "".join(_list_newest(marks, "alarm", 1)).removeprefix(ALERT_OVER)
        self._post_notes(runs[-1], _list_newest(marks, "note", MOST_NOTES), post)
        busy = [run for run in runs if _has_work(run)]
        self._is_restarting = self._has_posted and busy[-1:] != runs[-1:]
        if busy:
            self._post_described(busy, post, growing=growing and busy[-1] is runs[-1])

    def _post_described(self, runs: list[LiveRun], post: Post, *, growing: bool) -> None:
        """Post runs with their RunInfo."""
        self._has_posted = True
        runs = [*runs[:-1], recent_stats.with_earlier_steps(runs[-1], self._previous)]
        self._previous = runs[-1]
        self._present_alarm = recent_stats.detect_slowdown(runs[-1]) if growing else ""
        infos = [*map(describe_run, runs[:-1]), describe_run(runs[-1], growing=growing)]
        described = [*self._comparison_runs, *zip(runs, infos, strict=True)]
        view = load_view(self._view)
        if self._fallback_view and find_missing_needs(view, runs[-1:]):
            view = load_view(self._fallback_view)
        post(RunsChanged([r for r, _ in described], [i for _, i in described], [view]))

    def _post_notes(self, run: Run, notes: Sequence[str], post: Post) -> None:
        """Post the newest note of the engine, which answers an order, once."""
        self._mode = self._mode or str(run.meta.get("capture", ""))
        if self._has_posted and len(notes) > self._posted_notes:
            post(StatusMessage(notes[-1]))
        self._posted_notes = len(notes)

    def _post_state(self, dead: bool, post: Post) -> None:
        """Post a change of the state of the writer, once."""
        old, self.badge = self.badge, self._choose_badge(dead)
        if self.badge == old:
            return
        if dead and self.engine is not None and (died := self.engine.explain_failure()):
            post(StatusMessage(died) if self._has_posted else LoadFailed(self.engine.build_error()))
        elif self.badge == BETWEEN_BADGE:
            post(StatusMessage("the recorded process has ended; the program still runs"))
        else:  # the message is empty while the file grows: the header shows that
            post(StatusMessage(self._tail.notice or self._tail.state_message))

    def _post_nothing(self, dead: bool, post: Post) -> None:
        """Post once why an engine that ended well has recorded nothing."""
        if self.engine is None or self._has_posted or not dead or self._tail.is_behind:
            self._has_posted_nothing = False
        elif not self._has_posted_nothing and not self.engine.explain_failure():
            self._has_posted_nothing = True
            post(LoadFailed(EngineError(self.engine.explain_empty_recording())))

    def _post_alarm(self, dead: bool, post: Post) -> None:
        """Name an engine that hangs or has died until it responds again or started anew."""
        why, old = self._explain_silence(dead), self._alarm
        self._alarm = f"{why}: {', '.join(list_recovery_keys(self.engine))}" if why else self._reported_alarm
        if old and not self._alarm:
            who = "the server" if isinstance(self.engine, WatchProcess) else "the engine"
            post(StatusMessage(f"{who} responds again"))
        elif self._alarm != old:
            post(StatusMessage(""))

    def _explain_silence(self, dead: bool) -> str:
        """Return why the engine does not write, or an empty text."""
        if self.engine is None:
            return ""
        if dead:
            return self.engine.explain_failure() if self._has_posted else ""
        silence = "" if self._is_between_processes(dead) else self._tail.silence_warning
        return silence and (self._gap_warning or silence)

    def _post_gap_warning(self, post: Post) -> None:
        """Post once what a running engine reports about gaps, such as a full disk."""
        old, self._gap_warning = self._gap_warning, self.engine.gap_warning if self.engine else ""
        if self._gap_warning and self._gap_warning != old:
            post(StatusMessage(self._gap_warning))

    def _is_between_processes(self, dead: bool) -> bool:
        """Return whether the program runs on after its recorded process: a script that starts several."""
        return not dead and isinstance(self.engine, UserProgram) and self._tail.state == "ended"

    @property
    def run_badge(self) -> str:
        """The state of the writer of the last run; empty while the writer of another one starts."""
        return "" if self._is_restarting else self.badge

    def _choose_badge(self, dead: bool) -> str:
        if self._is_between_processes(dead):
            return BETWEEN_BADGE
        if dead:
            died = self.engine is not None and self.engine.explain_failure()
            return "engine died" if died else "engine ended"
        if self.engine is not None and self._tail.silence_warning:
            return "engine silent"
        if self._is_restarting:
            return self._activity
        if self._reported_alarm:
            return "no answer"
        return BADGES.get(self._tail.state, LIVE_BADGE)


def list_recovery_keys(engine: EngineProcess | None) -> list[str]:
    """Return the keys that help if an engine does not write, with what they do."""
    if engine is None:
        return []
    other = "E with other options" if isinstance(engine, BundledEngine) else "O shows its output"
    return ["R restarts it", other]


def _describe_start(engine: EngineProcess | None) -> str:
    """Return the activity to show before the file reports one."""
    return engine.start_message if engine is not None else "waiting for the first line"


def _select_log_lines(run: Run) -> pl.DataFrame:
    """Return the name and the path of every log line (kind `mark`) of a run."""
    if not run.has("path"):
        return pl.DataFrame(schema={"name": pl.String, "path": pl.String})
    return selection.select_kind(run, "mark", ("name", "path"))


def _list_newest(marks: pl.DataFrame, path: str, count: int) -> list[str]:
    """Return the newest names of log lines with a path, in their order."""
    return list(map(str, marks["name"].filter(marks["path"] == path).tail(count)))


def _has_work(run: Run) -> bool:
    """Whether a run has something to show: work, or metrics of a watched server."""
    kinds = (*WORK_KINDS, "counter") if run.meta.get("watched") else WORK_KINDS
    return any((run.events["kind"] == kind).any() for kind in kinds)


class RedrawScheduler:
    """Decides when to redraw: soon after a step, but rarely enough to use only a part of a core."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, spent: Callable[[], float] = time.process_time
    ) -> None:
        """`clock` returns seconds, `spent` the CPU seconds of this process."""
        self._clock, self._spent = clock, spent
        self._has_news = False  # not drawn yet
        self._due, self._poll_time, self._spent_before = 0.0, 0.0, spent()
        self._cost = 0.0  # of a redraw, averaged: a slow one alone delays nothing

    def is_due(self, fresh: bool) -> bool:
        """Whether to redraw now: at once if something has just come, else after STEP_WAIT_S."""
        self._poll_time, self._has_news = self._clock(), self._has_news or fresh
        since = self._poll_time - self._due
        return (fresh and since >= 0) or (self._has_news and since >= STEP_WAIT_S)

    def record_redraw(self, *, leisurely: bool) -> None:
        """Plan the next redraw, later if redraws are expensive; the first ones do not count (`leisurely`)."""
        before, self._spent_before = self._spent_before, self._spent()
        if leisurely:
            self._cost += (self._spent_before - before - self._cost) / COST_REDRAWS
        self._has_news = False
        self._due = self._poll_time + min(MOST_INTERVAL_S, max(REDRAW_INTERVAL_S, COST_FACTOR * self._cost))

    def compute_wait(self) -> float:
        """Return the seconds until the next look at the file; one is just before a redraw is due."""
        return max(POLL_INTERVAL_S, self._due - POLL_INTERVAL_S - self._clock())
