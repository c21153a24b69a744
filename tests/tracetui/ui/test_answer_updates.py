"""A question and its answer: never mixed up, never in each other's way."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import pytest
from msgspec import structs
from textual import events
from textual.pilot import Pilot

from capture.errors import UsageError
from capture.run import Run
from capture.tasks import Cancelled, check_cancelled
from tests.tracetui import runs as made_runs
from tests.tracetui.runs import recording
from tests.tracetui.ui.hand import answer, decode, play, press, screen, settle
from tracetui.look import FilterTerm, Look, Price
from tracetui.ui.answer_updates import NewestTaskPool
from tracetui.ui.app import Explorer
from tracetui.ui.controllers import run_updates
from tracetui.ui.messages import RunsChanged
from tracetui.ui.question import strip_presentation
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.views import Answer, View, find_missing_needs, load_view, load_views, sort_answer

Pilots = Pilot[Any]
SLOW_S = 5.0


class Watched:
    """A view that takes five seconds unless it is cancelled, and what became of each of its answers."""

    def __init__(self, view: View) -> None:
        self.began = 0
        self.cancelled = 0
        self.view = structs.replace(view, answer=self._answer)

    def _answer(self, runs: Sequence[Run], look: Look) -> Answer:
        self.began += 1
        end = time.monotonic() + SLOW_S
        try:
            while time.monotonic() < end:
                check_cancelled()
                time.sleep(0.01)
        except Cancelled:
            self.cancelled += 1
            raise
        raise AssertionError("nobody cancelled it")


def at_once(app: Explorer, *keys: str) -> None:
    """Keys as a terminal sends what was typed ahead: all of them before any is looked at."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


def slow(app: Explorer, name: str) -> Watched:
    """Makes a view of the app slow."""
    watched = Watched(load_view(name))
    app.workspace.views = [watched.view if v.name == name else v for v in app.workspace.views]
    return watched


def tab(app: Explorer, name: str) -> str:
    return str([v.name for v in app.workspace.tabs].index(name) + 1)


async def holds(pilot: Pilots, condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        await pilot.pause(0.01)


def test_a_slow_view_makes_no_other_wait_and_ends_when_it_is_left() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        watched = slow(app, "layers")
        began = time.monotonic()
        at_once(app, tab(app, "layers"))
        await holds(pilot, lambda: watched.began)
        await press(pilot, tab(app, "steps"))
        assert app.workspace.picture is not None
        assert app.workspace.picture.question.view.name == "steps"
        assert time.monotonic() - began < SLOW_S
        await holds(pilot, lambda: watched.cancelled)

    play(script, [decode()])


def test_a_hundred_switches_leave_no_thread_behind() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        watched = slow(app, "layers")
        before = threading.active_count()
        for _ in range(50):
            at_once(app, tab(app, "layers"), tab(app, "steps"))
            await pilot.pause(0.002)
        await settle(pilot)
        assert app.workspace.picture is not None
        assert app.workspace.picture.question.view.name == "steps"
        await holds(pilot, lambda: watched.cancelled == watched.began and app.pool.idle == app.pool.threads)
        assert threading.active_count() <= before + 3 and app.pool.threads <= 3

    play(script, [decode()])


def test_keys_that_wait_for_a_slow_view_hold_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracetui.ui.keyboard.STALE_KEY_S", 0.1)

    async def script(app: Explorer, pilot: Pilots) -> None:
        watched = slow(app, "layers")
        at_once(app, tab(app, "layers"), "j", "j")
        await holds(pilot, lambda: watched.began)
        await pilot.pause(0.2)
        assert not app.keyboard.is_idle
        at_once(app, tab(app, "steps"))
        await holds(pilot, lambda: watched.cancelled)
        await settle(pilot)
        assert app.workspace.session.view == "steps" and app.keyboard.is_idle

    play(script, [decode()])


def test_the_header_marks_a_view_whose_answer_is_awaited() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        watched = slow(app, "layers")
        at_once(app, tab(app, "layers"))
        await holds(pilot, lambda: watched.began)
        await holds(pilot, lambda: screen(app)[0].startswith(" hand › Layers › …"))
        at_once(app, tab(app, "steps"))
        await holds(pilot, lambda: watched.cancelled)
        await settle(pilot)
        assert screen(app)[0].startswith(" hand › Steps") and "› …" not in screen(app)[0]

    play(script, [decode()])


def test_keys_that_are_typed_while_nothing_is_read_yet_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    run, loaded = made_runs.decode(8), threading.Event()
    monkeypatch.setattr(run_updates, "load_views", lambda: load_views() if loaded.wait(SLOW_S) else [])
    app = Explorer(None, ScreenOptions(view="layers"))

    async def session() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            at_once(app, "2", "p", "j", "s", "e")
            await pilot.pause(0.05)
            app.post_message(RunsChanged([run], [describe_run(run)], [load_view("layers")]))
            await holds(pilot, lambda: app.answers.is_answered and app.workspace.is_showing_view)
            assert not app.keyboard.is_idle and app.workspace.session.view == "layers"
            loaded.set()
            await holds(pilot, lambda: app.is_settled)
            look = app.workspace.session.look
            assert app.workspace.session.view == "kernels" and look.full_names
            assert look.phase == "prefill" and look.sort is not None

    asyncio.run(session())


def test_other_views_load_while_the_first_one_takes_its_time() -> None:
    run = made_runs.decode(8)
    watched = Watched(load_view("layers"))
    app = Explorer(None, ScreenOptions(view="layers"))

    async def session() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            app.set_interval(0.05, app._tick)  # as where files are read
            app.post_message(RunsChanged([run], [describe_run(run)], [watched.view]))
            await holds(pilot, lambda: watched.began)
            at_once(app, "2")
            await holds(pilot, lambda: watched.cancelled and app.is_settled)
            assert app.workspace.session.view == "kernels"

    asyncio.run(session())


def test_views_that_cannot_be_loaded_are_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[View]:
        raise ImportError("planted")

    monkeypatch.setattr(run_updates, "load_views", broken)
    run = made_runs.decode(8)
    app = Explorer(None, ScreenOptions(view="layers"))

    async def session() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            app.post_message(RunsChanged([run], [describe_run(run)], [load_view("layers")]))
            await holds(pilot, lambda: "could not be loaded: ImportError: planted" in app.renderer.message)
            assert app.is_settled and answer(app).rows.height

    asyncio.run(session())


def test_quit_waits_for_nothing_but_text_that_was_typed_ahead_is_text() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        slow(app, "layers")
        at_once(app, "s", "slash", *"qgemm")
        await pilot.pause(0.05)
        await settle(pilot)
        assert app.is_running and app.workspace.draft is not None
        assert app.workspace.draft.text == "qgemm"
        at_once(app, "escape", tab(app, "layers"), "j", "q")
        await holds(pilot, lambda: not app.is_running or app._exit)

    assert play(script, [decode()]).return_code == 0


def test_another_order_asks_nothing() -> None:
    questions = 0

    def counted(runs: Sequence[Run], look: Look) -> Answer:
        nonlocal questions
        questions += 1
        return load_view("kernels").answer(runs, look)

    async def script(app: Explorer, pilot: Pilots) -> None:
        known = structs.replace(load_view("kernels"), answer=counted)
        app.workspace.views = [known if v.name == "kernels" else v for v in app.workspace.views]
        await press(pilot, "u")
        before = questions
        assert before == 1
        given = answer(app)
        for key in ("s", "s", "S", "m", "e", "w"):
            await press(pilot, key)
            look = app.workspace.session.look
            assert app.workspace.picture is not None
            assert answer(app).rows.equals(sort_answer(app.workspace.picture.raw_answer, look).rows)
        assert questions == before and not answer(app).rows.equals(given.rows)

    play(script, [decode()])


def test_what_is_drawn_again_is_what_is_asked() -> None:
    """`e` draws again while `p` still is asked: the picture is that of the phase."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        at_once(app, "p", "e")
        await pilot.pause(0.05)
        await settle(pilot)
        assert app.workspace.picture is not None
        assert app.workspace.picture.question.look.phase == "prefill" == app.workspace.session.look.phase
        fresh = load_view("layers").answer([run], strip_presentation(app.workspace.session.look))
        assert answer(app).rows.equals(fresh.rows) and app.workspace.session.look.full_names

    run = made_runs.decode(8)
    play(script, [run], ScreenOptions(view="layers"))


def test_a_drawing_that_came_for_another_size_is_drawn_again_and_shown() -> None:
    """The line of a name in full goes away with the table: the drawing is as high as the pane is then."""

    async def script(app: Explorer, pilot: Pilots) -> None:
        at_once(app, "F", "e", "3")
        await pilot.pause(0.05)
        await settle(pilot)
        assert app.workspace.session.view == "growth" and not app.main_screen.shows_table
        shown = "\n".join(screen(app))
        assert "law" in shown and "recoverable" not in shown  # columns of this view and of the one before

    play(script, [decode("one"), decode("two", steps=7)], size=(100, 14))


def test_a_drawing_that_came_out_the_same_is_shown_where_a_page_has_covered_it() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, tab(app, "layers"))
        before = screen(app)[2:-2]
        at_once(app, "S", "f1", tab(app, "layers"))  # a heat map has one order
        await pilot.pause(0.05)
        await settle(pilot)
        assert screen(app)[2:-2] == before

    play(script, [decode()], size=(100, 14))


def test_a_drawing_stays_where_it_was_scrolled_to() -> None:
    async def scroll_to(app: Explorer, pilot: Pilots, line: int) -> None:
        """Press j past the lines that can be entered, until the drawing has scrolled."""
        for _ in range(10):
            if app.main_screen.drawing.top_line < line:
                await press(pilot, "j")
        assert app.main_screen.drawing.top_line == line

    async def script(app: Explorer, pilot: Pilots) -> None:
        await scroll_to(app, pilot, 2)
        for key in ("L", "m", "S", "L"):  # there is one stopwatch, and nothing to mark or to sort
            await press(pilot, key)
            assert app.main_screen.drawing.top_line == 2
        await press(pilot, "p")
        assert app.workspace.session.look.phase is not None
        assert app.main_screen.drawing.top_line == 2  # as the cursor, which stays on its line
        await press(pilot, "question_mark", "escape")
        assert app.main_screen.drawing.top_line == 0

    play(script, [decode()], ScreenOptions(view="summary"), size=(80, 10))


def test_the_rows_of_another_question_do_not_stand_under_one_that_is_refused() -> None:
    def refusing(runs: Sequence[Run], look: Look) -> Answer:
        raise UsageError("no such thing can be said")

    async def script(app: Explorer, pilot: Pilots) -> None:
        views = app.workspace.views
        app.workspace.views = [
            structs.replace(v, answer=refusing) if v.name == "layers" else v for v in views
        ]
        await press(pilot, tab(app, "layers"))
        text = "\n".join(screen(app))
        assert "no such thing can be said" in screen(app)[-2] and "sampler" not in text
        await press(pilot, tab(app, "kernels"))
        assert "sampler" in "\n".join(screen(app))

    play(script, [decode()])


# what an answer depends on

PRESENTATION = {f.name for f in fields(Look) if getattr(strip_presentation(Look(
    sort="a", descending=False, then=(("b", False),), filter="f", where=(FilterTerm("op", "~", "x"),),
    group="g", lens="gpu", phase="p", per="step", window=(1, 2),
    steady=True, focus=(("a", 1),), chosen=((1,),), zoom=(1, 2), cursor=(3, 4), slice=(0, 1, 2),
    full_names=True, columns=("a",), one_table=True, limit=3, merged=True, what_if=(("a", 0.5),),
    price=Price(1.0),
)), f.name) == getattr(Look(), f.name)} - {"terms"}  # fmt: skip


class ReadLook(Look):
    """A look that refuses to be asked for what no answer may depend on."""

    def __getattribute__(self, name: str) -> Any:
        if name in PRESENTATION:
            caller = sys._getframe(1).f_code.co_filename
            assert caller.endswith("dataclasses.py") or caller.startswith("<"), f"an answer reads {name}"
        return super().__getattribute__(name)


def test_what_no_answer_depends_on_is_no_part_of_a_question() -> None:
    order = {"sort", "descending", "then", "limit"}
    drawn = {"cursor", "slice", "chosen", "full_names", "columns", "one_table"}
    assert order | drawn == PRESENTATION


@pytest.mark.corpus
@pytest.mark.parametrize("name", [v.name for v in load_views()])
def test_no_answer_depends_on_the_order(name: str) -> None:
    known = load_view(name)
    runs = [recording("before", noise=1), recording("after", noise=2)] if known.run_count > 1 else SAMPLES
    for run in [runs] if known.run_count > 1 else [[r] for r in runs]:
        if not find_missing_needs(known, run):
            focus = (("name", "attention"),) if name in ("detail", "pair") else (("scope", "run"),)
            try:
                known.answer(run, ReadLook(focus=focus))
            except UsageError:
                continue


SAMPLES = [made_runs.decode(8), made_runs.aggregates(), made_runs.scopes(), made_runs.nested()]


# threads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_the_newest_job_runs_beside_those_that_do_not_end(gate: threading.Event) -> None:
    pool, ran = NewestTaskPool("test", threads=3), list[int]()
    tokens = [pool.start(lambda: gate.wait(60)) for _ in range(2)]
    result = threading.Event()
    pool.start(lambda: (ran.append(1), result.set()))
    assert result.wait(60) and ran == [1]
    assert all(token.cancelled for token in tokens)


def test_of_jobs_that_wait_only_the_newest_is_run(gate: threading.Event) -> None:
    pool, ran, busy = NewestTaskPool("test", threads=3), list[int](), threading.Semaphore(0)
    for _ in range(3):
        pool.start(lambda: (busy.release(), gate.wait(60)))
        assert busy.acquire(timeout=60)
    result = threading.Event()
    for number in range(5):
        pool.start(lambda n=number: (ran.append(n), result.set()))  # type: ignore[misc]
    assert pool.threads == 3 and ran == []
    gate.set()
    assert result.wait(60)
    time.sleep(0.05)
    assert ran == [4]


def test_a_cancelled_job_ends_and_leaves_its_thread_to_the_next() -> None:
    pool, ended = NewestTaskPool("test"), threading.Event()

    def work() -> None:
        try:
            while True:
                check_cancelled()
                time.sleep(0.001)
        finally:
            ended.set()

    for _ in range(100):
        ended.clear()
        token = pool.start(work)
        pool.cancel()
        assert token.cancelled
    assert pool.threads <= 3
