"""A file that grows, followed in a thread; what becomes of it and of its engine is told."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from textual.message import Message

from capture.errors import CaptureError
from capture.run import Run
from tracetui.process import Engine
from tracetui.ui.messages import LoadFailed, RunsChanged, Told, ViewsKnown, WordsChanged
from tracetui.ui.run_info import facts
from tracetui.views import view, views

if TYPE_CHECKING:
    from capture.native.follow import Follow

EVERY: Final = 0.02  # seconds between two looks at the file, where a picture of it may be made
REFRESH: Final = 0.2  # seconds between two pictures of it
PATIENCE: Final = 0.1  # seconds that a picture which is due waits for a step, so that it shows a new one
LEISURE: Final = 7  # of all the time, the part that making pictures takes is one in so many at most
SLOWEST: Final = 0.5  # seconds between two pictures, whatever they cost
NOTES: Final = 1 << 12  # that are counted
TEXT_MARKS: Final = 40  # pieces of text that the status line may show
WORK: Final = ("kernel", "step", "span")  # kinds that are something to see
BADGES: Final = {"ended": "ended", "deleted": "file deleted", "quiet": "no data"}
HELP: Final = "R starts it anew, E with other options"
MODES: Final = ("spans", "windows", "continuous")


class Following:
    """The growing side of the screen: start it with where its messages go, stop it when the screen closes."""

    def __init__(
        self,
        path: str | Path,
        engine: Engine | None = None,
        view: str = "summary",
        beside: Sequence[Run] = (),
    ) -> None:
        self.paths = [str(path)]
        self.size = 0  # a file that grows has no size to be read up to
        self.badge = ""  # what the header says about the writer
        self.words = _beginning(engine)
        self.text = ""  # the end of what the model wrote
        self.alarm = ""  # what is wrong with an engine that is alive, for as long as it is
        self._engine = engine
        self._view = view
        self._beside = [(run, facts(run)) for run in beside]
        self._follow = _follow(path)
        self._began = time.monotonic()
        self._over = threading.Event()
        self._shown = False
        self._complaint = ""  # the last word of the engine on itself
        self._starting = False  # another engine is on its way to its first step
        self._mode = ""  # the way in which the engine captures, where it is known
        self._noted = 0  # notes of the run that were told

    def start(self, post: Callable[[Message], object]) -> None:
        threading.Thread(target=self._watch, args=(post,), name="following", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def read(self) -> int:
        return 0

    @property
    def engine(self) -> Engine | None:
        return self._engine

    @property
    def ours(self) -> bool:
        return self._engine is not None and self._engine.running

    def start_anew(self) -> None:
        """The engine once more, after its end."""
        if self._engine is not None:
            self._follow.listen()
            self.words, self.alarm, self._mode = _beginning(self._engine), "", ""
            self._engine.start()

    def order(self, what: Mapping[str, Any]) -> bool:
        """An order to the engine; false where none of ours listens."""
        return self._engine is not None and self._engine.send(what)

    def next_mode(self) -> str | None:
        """The engine captures in another way from now on; what it answers is a note."""
        known = MODES.index(self._mode) if self._mode in MODES else 0
        place = (known + 1) % len(MODES)
        if not self.order({"do": "mode", "mode": MODES[place]}):
            return None
        self._mode = MODES[place]
        return self._mode

    def _watch(self, post: Callable[[Message], object]) -> None:
        """Until the screen closes; the last bytes of an engine that has died are shown too."""
        news, due, spent = False, 0.0, time.process_time()  # news: that no picture shows yet
        try:
            while not self._over.is_set():
                dead = self._engine is not None and not self._engine.running
                last = dead and not self.badge.startswith("engine")
                fresh = self._follow.poll()
                news, began = news or fresh, time.monotonic()
                if last or (fresh and began >= due) or (news and began >= due + PATIENCE):
                    self._show(self._follow.runs(final=dead), post)
                    before, spent = spent, time.process_time()
                    cost = LEISURE * (spent - before) if self._shown else 0.0
                    news, due = False, began + min(SLOWEST, max(REFRESH, cost))
                self._tell(dead, post)
                self._watch_pulse(dead, post)
                self._listen(post)
                rest = due - EVERY - time.monotonic()  # one look ahead, to see what comes just then
                self._over.wait(EVERY if self._follow.behind else max(EVERY, rest))
        except CaptureError as e:
            post(LoadFailed(e) if not self._shown else Told(str(e)))

    def _show(self, runs: list[Run], post: Callable[[Message], object]) -> None:
        """Runs come into sight once there is something to see; before that, what the engine is doing."""
        if not runs:
            return
        marks = _marks(runs[-1])
        before, self.words = self.words, "".join(_newest(marks, "status", 1)) or self.words
        if self.words != before:
            post(WordsChanged())
        self.text = "".join(_newest(marks, "text", TEXT_MARKS))
        self._tell_notes(runs[-1], _newest(marks, "note", NOTES), post)
        busy = [run for run in runs if _has_work(run)]
        self._starting = self._shown and busy[-1:] != runs[-1:]
        if busy:
            first, self._shown = not self._shown, True
            known = [*self._beside, *((run, facts(run)) for run in busy)]
            post(RunsChanged([r for r, _ in known], [f for _, f in known], [view(self._view)]))
            if first:
                post(ViewsKnown(views()))

    def _tell_notes(self, run: Run, notes: Sequence[str], post: Callable[[Message], object]) -> None:
        """What an engine answers to an order: its newest note, once."""
        self._mode = self._mode or str(run.meta.get("capture", ""))
        if self._shown and len(notes) > self._noted:
            post(Told(notes[-1]))
        self._noted = len(notes)

    def _tell(self, dead: bool, post: Callable[[Message], object]) -> None:
        """A change of the writer's fortune, once."""
        old, self.badge = self.badge, self._fortune(dead)
        if self.badge == old:
            return
        if dead and self._engine is not None and (died := self._engine.obituary()):
            post(Told(died) if self._shown else LoadFailed(self._engine.failure()))
        elif self._follow.notice:
            post(Told(self._follow.notice))
        else:
            post(Told(self._follow.says or self.badge))

    def _watch_pulse(self, dead: bool, post: Callable[[Message], object]) -> None:
        """An engine that hangs or has died is named until it is heard again or started anew."""
        why, old = self._trouble(dead), self.alarm
        self.alarm = f"{why}: {HELP}" if why else ""
        if old and not why:
            post(Told("the engine is heard again"))
        elif self.alarm != old:
            post(Told(""))

    def _trouble(self, dead: bool) -> str:
        if self._engine is None:
            return ""
        if dead:
            return self._engine.obituary() if self._shown else ""
        silence = self._follow.silence
        return silence and (self._complaint or silence)

    def _listen(self, post: Callable[[Message], object]) -> None:
        """What an engine says of itself while it goes on: that its disk is full."""
        old, self._complaint = self._complaint, self._engine.complaint if self._engine is not None else ""
        if self._complaint and self._complaint != old:
            post(Told(self._complaint))

    def _fortune(self, dead: bool) -> str:
        if dead:
            died = self._engine is not None and self._engine.obituary()
            return "engine died" if died else "engine ended"
        if self._engine is not None and self._follow.silence:
            return "engine silent"
        if self._starting:
            return self.words
        return BADGES.get(self._follow.state, "live")


def _follow(path: str | Path) -> "Follow":
    from capture.native.follow import Follow  # only a file that grows needs it

    return Follow(path)


def _beginning(engine: Engine | None) -> str:
    """What is going on while the file does not say it yet."""
    return "starting the engine" if engine is not None else "waiting for the first line"


def _marks(run: Run) -> pl.DataFrame:
    """The marks of a run, each with its class."""
    if not run.has("path"):
        return pl.DataFrame(schema={"name": pl.String, "path": pl.String})
    return run.events.select("name", "path").filter(run.events["kind"] == "mark").cast(pl.String)


def _newest(marks: pl.DataFrame, path: str, count: int) -> list[str]:
    """The newest lines of a class of marks, the last one last."""
    return [str(name) for name in marks.filter(pl.col("path") == path)["name"].tail(count)]


def _has_work(run: Run) -> bool:
    return any((run.events["kind"] == kind).any() for kind in WORK)
