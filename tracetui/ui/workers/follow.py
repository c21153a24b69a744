"""A file that grows, followed in a thread; what becomes of it and of its engine is posted."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from capture.errors import CaptureError, EngineError
from capture.run import Run
from capture.shelf import ROOM
from tracetui.analysis import present, select
from tracetui.analysis.paces import Memory
from tracetui.analysis.watched import OVER
from tracetui.process import Bundled, Engine, Watcher
from tracetui.ui.messages import LoadFailed, Notice, ProgressChanged, RunsChanged
from tracetui.ui.run_info import describe_run
from tracetui.ui.workers.feed import LIVE, Post, Progress
from tracetui.ui.workers.pace import EVERY, Pace
from tracetui.views import View, missing, view

if TYPE_CHECKING:
    from capture.native.follow import Follow

NOTES: Final = 1 << 12  # that are counted
TEXT_MARKS: Final = 40  # pieces of text that the status line may show
WORK: Final = ("kernel", "step", "span")  # kinds that are something to see
BADGES: Final = {"ended": "ended", "deleted": "file deleted", "quiet": "no data"}
MODES: Final = ("spans", "windows", "continuous")


class FileFollower:
    """Follows a file from `start` until `stop`, and knows how its engine is."""

    def __init__(
        self,
        path: str | Path,
        engine: Engine | None = None,
        view: str = "summary",
        beside: Sequence[Run] = (),
        follow: "Follow | None" = None,
        instead: str | None = None,
    ) -> None:
        """Post runs in `beside` before those of the file, which `follow` reads where given. The first is
        `view`, or `instead` where the first run cannot feed that one.
        """
        self._engine = engine
        self._view, self._instead = view, instead
        self._beside = [(run, describe_run(run)) for run in beside]
        self._follow = follow or _open(path)
        self._memory = Memory()
        self._badge = ""
        self._doing = _first_words(engine)
        self._text = ""
        self._alarm = ""
        self._began = time.monotonic()
        self._over = threading.Event()
        self._shown = False  # whether runs have been posted
        self._complaint = ""  # the last word of the engine on itself
        self._starting = False  # another engine is on its way to its first step
        self._told_alarm = ""  # what the file says is wrong with what is watched
        self._off_line = ""  # what of the present is unlike the minute before
        self._mode = ""  # the way in which the engine captures, where it is known
        self._notes_told = 0
        self._told_nothing = False

    def start(self, post: Post) -> None:
        threading.Thread(target=self._watch, args=(post,), name="following", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def progress(self) -> Progress:
        return Progress(time.monotonic() - self._began, self._doing, alarm=self._alarm)

    @property
    def live(self) -> "FileFollower":
        return self

    @property
    def badge(self) -> str:
        return self._badge

    @property
    def text(self) -> str:
        return self._text

    @property
    def alarm(self) -> str:
        return self._alarm or self._off_line

    @property
    def engine(self) -> Engine | None:
        return self._engine

    @property
    def listens(self) -> bool:
        return self._engine is not None and self._engine.running

    def start_anew(self) -> None:
        """Start the engine again after its end. Raises EngineError."""
        if self._engine is not None:
            self._follow.listen()
            self._doing, self._alarm, self._mode = _first_words(self._engine), "", ""
            self._engine.start()

    def order(self, what: Mapping[str, Any]) -> bool:
        """Send an order to the engine; return false where none of ours listens."""
        return self._engine is not None and self._engine.send(what)

    def next_mode(self) -> str | None:
        """Ask the engine to capture in the next way; what it answers comes as a note."""
        place = MODES.index(self._mode) if self._mode in MODES else 0
        mode = MODES[(place + 1) % len(MODES)]
        if not self.order({"do": "mode", "mode": mode}):
            return None
        self._mode = mode
        return mode

    def _watch(self, post: Post) -> None:
        """Post until `stop`; the last bytes of an engine that has died are shown too."""
        pace = Pace()
        try:
            while not self._over.is_set():
                dead = self._engine is not None and not self._engine.running
                last = dead and not self._badge.startswith("engine")
                if pace.is_due(self._follow.poll()) or last:
                    growing = not dead and self._follow.state == "growing"
                    self._post_runs(self._follow.runs(final=dead), post, growing=growing)
                    pace.shown(leisurely=self._shown)
                self._post_state(dead, post)
                self._post_nothing(dead, post)
                self._watch_pulse(dead, post)
                self._post_complaint(post)
                self._over.wait(EVERY if self._follow.behind else pace.rest())
        except CaptureError as e:
            post(LoadFailed(e) if not self._shown else Notice(str(e)))

    def _post_runs(self, runs: list[Run], post: Post, *, growing: bool) -> None:
        """Post the runs that have something to see; before the first of them, what the engine is doing."""
        if not runs:
            return
        marks = _marks(runs[-1])
        before, self._doing = self._doing, "".join(_newest(marks, "status", 1)) or self._doing
        if self._doing != before:
            post(ProgressChanged())
        self._text = "".join(_newest(marks, "text", TEXT_MARKS))
        self._told_alarm = "".join(_newest(marks, "alarm", 1)).removeprefix(OVER)
        self._post_notes(runs[-1], _newest(marks, "note", NOTES), post)
        busy = [run for run in runs if _has_work(run)]
        self._starting = self._shown and busy[-1:] != runs[-1:]
        if busy:
            self._post_described(busy, post, growing=growing and busy[-1] is runs[-1])

    def _post_described(self, runs: list[Run], post: Post, *, growing: bool) -> None:
        """Post runs with what the screen shows of them."""
        self._shown = True
        self._memory.add(runs[-1])
        self._off_line = present.alarm(runs[-1]) if growing else ""
        infos = [*map(describe_run, runs[:-1]), describe_run(runs[-1], growing=growing)]
        described = [*self._beside, *zip(runs, infos, strict=True)]
        post(RunsChanged([r for r, _ in described], [i for _, i in described], [self._first_view(runs[-1])]))

    def _first_view(self, run: Run) -> View:
        """Return the view that the screen begins with."""
        asked = view(self._view)
        return view(self._instead) if self._instead and missing(asked, [run]) else asked

    def _post_notes(self, run: Run, notes: Sequence[str], post: Post) -> None:
        """Post the newest note of an engine, which is its answer to an order, once."""
        self._mode = self._mode or str(run.meta.get("capture", ""))
        if self._shown and len(notes) > self._notes_told:
            post(Notice(notes[-1]))
        self._notes_told = len(notes)

    def _post_state(self, dead: bool, post: Post) -> None:
        """Post a change of how the writer is, once."""
        old, self._badge = self._badge, self._badge_now(dead)
        if self._badge == old:
            return
        if dead and self._engine is not None and (died := self._engine.failure_reason()):
            post(Notice(died) if self._shown else LoadFailed(self._engine.failure()))
        elif self._follow.notice:
            post(Notice(self._follow.notice))
        else:
            post(Notice(self._follow.says))  # nothing of one that grows, which the head tells

    def _post_nothing(self, dead: bool, post: Post) -> None:
        """Post once that an engine has ended well, and why there is nothing to see."""
        if self._engine is None or self._shown or not dead or self._follow.behind:
            self._told_nothing = False
        elif not self._told_nothing and not self._engine.failure_reason():
            self._told_nothing = True
            post(LoadFailed(EngineError(self._engine.nothing_reason())))

    def _watch_pulse(self, dead: bool, post: Post) -> None:
        """Name an engine that hangs or has died until it is heard again or started anew."""
        why, old = self._trouble(dead), self._alarm
        self._alarm = f"{why}: {', '.join(ways_on(self._engine))}" if why else self._told_alarm
        if old and not self._alarm:
            who = "the server" if isinstance(self._engine, Watcher) else "the engine"
            post(Notice(f"{who} is heard again"))
        elif self._alarm != old:
            post(Notice(""))

    def _trouble(self, dead: bool) -> str:
        """Return why the engine writes no more; empty where it does."""
        if self._engine is None:
            return ""
        if dead:
            return self._engine.failure_reason() if self._shown else ""
        silence = self._follow.silence
        return silence and (self._complaint or silence)

    def _post_complaint(self, post: Post) -> None:
        """Post what an engine says of itself while it goes on, such as that its disk is full, once."""
        old, self._complaint = self._complaint, self._engine.gap_warning if self._engine is not None else ""
        if self._complaint and self._complaint != old:
            post(Notice(self._complaint))

    def _badge_now(self, dead: bool) -> str:
        if dead:
            died = self._engine is not None and self._engine.failure_reason()
            return "engine died" if died else "engine ended"
        if self._engine is not None and self._follow.silence:
            return "engine silent"
        if self._starting:
            return self._doing
        if self._told_alarm:
            return "no answer"
        return BADGES.get(self._follow.state, LIVE)


def _open(path: str | Path) -> "Follow":
    from capture.native.follow import Follow  # only a file that grows needs it

    return Follow(path, shelved=ROOM)


def ways_on(engine: Engine | None) -> list[str]:
    """Return the keys that lead on where an engine writes no more, with what they do."""
    if engine is None:
        return []
    other = "E with other options" if isinstance(engine, Bundled) else "O shows what it printed"
    return ["R starts it anew", other]


def _first_words(engine: Engine | None) -> str:
    """Return what is going on while the file does not say it yet."""
    return engine.first_words if engine is not None else "waiting for the first line"


def _marks(run: Run) -> pl.DataFrame:
    """Return the name and the class of every mark of a run."""
    if not run.has("path"):
        return pl.DataFrame(schema={"name": pl.String, "path": pl.String})
    return select.of_kind(run, "mark", ("name", "path"))


def _newest(marks: pl.DataFrame, path: str, count: int) -> list[str]:
    """Return the newest names of a class of marks, the last one last."""
    return list(map(str, marks["name"].filter(marks["path"] == path).tail(count)))


def _has_work(run: Run) -> bool:
    """Return whether there is something to see: work, or the figures of a server that is watched."""
    kinds = (*WORK, "counter") if run.meta.get("watched") else WORK
    return any((run.events["kind"] == kind).any() for kind in kinds)
