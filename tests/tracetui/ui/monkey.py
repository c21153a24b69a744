"""Random keys for the screen, and an oracle: what must stand there is computed anew from the session.

    python -m tests.tracetui.ui.monkey 100000 --jobs 2

It plays over made runs, every fixture and every installed sample, and exits with 1 where screens differ.
Two screens get the same keys: one a burst at once, the other one key after the other, each waited for.
After every burst both must show the same, and it must be the answer to what is asked. `--only "chrome 0:5"`
repeats the keys of a sample and a seed.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from textual import events
from textual.pilot import Pilot

from capture.errors import CaptureError
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.run import Run
from tests.tracetui import runs as made
from tests.tracetui.runs import recording
from tests.tracetui.ui.hand import PATIENCE, decode, screen
from tracetui import saved_choices
from tracetui.samples import SAMPLES, find_sample
from tracetui.ui import answer_updates, keyboard
from tracetui.ui.app import Explorer
from tracetui.ui.controllers import filter_prompt
from tracetui.ui.controllers.run_actions import RunActions
from tracetui.ui.key_table import KEYS, TAB_KEYS
from tracetui.ui.messages import RunsChanged
from tracetui.ui.question import make_picture
from tracetui.ui.renderer import Renderer
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers import read_files
from tracetui.views import load_views

Pilots = Pilot[Any]

LEFT_OUT: Final = ("native", "pictures")  # of the fixtures: told by `samples`, no profiles
FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
# These leave the screen, or do something whose outcome comes from outside of it.
NEVER: Final = ("quit", "palette", "suspend", "export", "copy_row", "copy_markdown")
TYPED: Final = ("a", "m", "(", ".", "n", "backspace", "ctrl+u")
BURSTS: Final = 40  # of one screen
SIZES: Final = ((80, 24), (120, 40), (100, 14))
POLL: Final = 0.0005  # seconds
HOUR: Final = 3600.0


def burst(draw: random.Random) -> list[str]:
    """Some keys, the more usual ones more often; a filter is typed and closed again."""
    names = [name for key in KEYS if key.command not in NEVER for name in key.keys.split(",")]
    keys: list[str] = []
    for _ in range(draw.randint(1, 9)):
        match draw.random():
            case x if x < 0.2:
                keys.append(draw.choice(list(TAB_KEYS)))
            case x if x < 0.27:
                keys += [
                    "slash",
                    *draw.choices(TYPED, k=draw.randint(0, 3)),
                    draw.choice(("enter", "escape")),
                ]
            case x if x < 0.5:
                keys.append(draw.choice(("j", "k", "l", "h", "p", "e", "s", "o", "enter", "escape")))
            case _:
                keys.append(draw.choice(names))
    return keys


def samples() -> dict[str, list[Run]]:
    """Runs of several kinds, all of them in the repository."""
    native = sorted((FIXTURES / "native").glob("*.jsonl"))[:2]
    return {
        "decode": [made.decode(12)],
        "hand": [decode("one"), decode("two", steps=7), decode("three", steps=3)],
        "pair": [recording("before", noise=1), recording("after", noise=2, slow={"norm": 1.5})],
        "small": [made.aggregates(), made.scopes(), made.nested()],
        "native": [run for path in native for run in load(path, cache=False)],
    }


def everything() -> dict[str, list[Run]]:
    """The same, the fixtures format by format, and the samples that are installed."""
    found = samples()
    for folder in sorted(p for p in FIXTURES.iterdir() if p.is_dir() and p.name not in LEFT_OUT):
        found |= {f"{folder.name} {n}": runs for n, runs in enumerate(_some(_readable(folder)))}
    return found | {f"sample {name}": load(find_sample(name), cache=False) for name in SAMPLES}


def _readable(folder: Path) -> list[Run]:
    runs: list[Run] = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with contextlib.suppress(CaptureError):
            runs += load(path, cache=False, capture=NO_CAPTURE)
    return runs


def _some(runs: list[Run], at_once: int = 3) -> Iterator[list[Run]]:
    for begin in range(0, len(runs), at_once):
        yield runs[begin : begin + at_once]


class Hands:
    """One screen and the way in which its keys are pressed."""

    def __init__(self, runs: Sequence[Run], size: tuple[int, int], *, slowly: bool) -> None:
        self._runs, self._size, self._slowly = runs, size, slowly
        self._infos = [describe_run(run) for run in runs]

    def play(self, bursts: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return what stands on the screen after each burst."""
        return asyncio.run(self._play(bursts))

    async def _play(self, bursts: Sequence[Sequence[str]]) -> list[list[str]]:
        app, screens = Explorer(None, ScreenOptions(view="kernels", clipboard=False)), []
        async with app.run_test(size=self._size) as pilot:
            app.post_message(RunsChanged(self._runs, self._infos, load_views()))
            await rest(app, pilot)
            for keys in bursts:
                for key in keys:
                    app.post_message(events.Key(key, key if len(key) == 1 else None))
                    if self._slowly:
                        await rest(app, pilot)
                await rest(app, pilot)
                screens.append(screen(app))
                if not self._slowly:  # the other must show the same
                    judge(app)
        return screens


async def rest(app: Explorer, pilot: Pilots) -> None:
    """Wait until the last question is answered and painted. Nothing is waited for by the clock."""
    for _ in range(100 * PATIENCE):
        await asyncio.sleep(0 if app.is_settled else POLL)
        if app.crash is not None:
            raise app.crash
        if is_idle(app):
            await pilot.pause(0)
            await asyncio.sleep(0)
            if is_idle(app):
                return
    raise AssertionError("what was asked last was never answered")


def is_idle(app: Explorer) -> bool:
    """Return whether nothing is being answered, and no message waits."""
    pumps = (app, *app.screen.walk_children(with_self=True))
    return app.is_settled and not any(each.message_queue_size for each in pumps)


def judge(app: Explorer) -> None:
    """What is in sight is what the views say to the session, drawn for its look."""
    workspace, picture, main = app.workspace, app.workspace.picture, app.main_screen
    assert picture is not None and workspace.exit_code == 0
    if picture.is_refusal:
        return
    question = workspace.question
    if not workspace.is_showing_view:
        return  # a list may change what is asked next
    assert picture.question.is_same(question)
    fresh = make_picture(question, workspace.session.look, picture.size)
    assert picture.answer.rows.equals(fresh.answer.rows) and picture.answer.notes == fresh.answer.notes
    assert picture.lines == fresh.lines
    if not workspace.has_unread_doubts:
        assert main.shows_table == (picture.lines is None)
        shown = screen(app)
        if picture.lines is None:
            assert main.table.sheet is picture.sheet
            assert main.table.cursor == max(
                0, min(workspace.session.look.cursor[0], picture.answer.rows.height - 1)
            )
        elif picture.lines:
            assert picture.size == app.renderer.measure_pane()
            text = "".join(span.text for span in picture.lines[main.drawing.top_line])[
                : picture.size.width
            ].rstrip()
            assert shown[2].rstrip() == f" {text}".rstrip(), (shown[2], text)


def compare(runs: Sequence[Run], bursts: Sequence[Sequence[str]], size: tuple[int, int]) -> None:
    """Both ways to press the keys must lead to the same screens."""
    fast = Hands(runs, size, slowly=False).play(bursts)
    slow = Hands(runs, size, slowly=True).play(bursts)
    for number, (one, other) in enumerate(zip(fast, slow, strict=True)):
        assert one == other, explain(bursts[: number + 1], one, other)


def explain(bursts: Sequence[Sequence[str]], one: Sequence[str], other: Sequence[str]) -> str:
    lines = [f"at once  {a}\nslowly   {b}" for a, b in zip(one, other, strict=True) if a != b]
    return "\n".join(["the screens differ after", *map(" ".join, bursts), *lines])


def unhurried(patch: Any) -> None:
    """Nothing that happens after a while happens here, and nothing is known from outside the screen."""
    show, edited = Renderer.show_message, filter_prompt.FilterController._schedule_filter
    patch(Renderer, "show_message", lambda self, text, seconds=HOUR: show(self, text, HOUR))
    patch(answer_updates, "SLOW_ANSWER_S", HOUR)
    patch(keyboard, "STALE_KEY_S", HOUR)
    patch(filter_prompt.FilterController, "_schedule_filter", _rested_at_once(edited))
    patch(RunActions, "open_prompt", lambda self, path="": None)
    patch(read_files, "list_saved_files", lambda open_runs, opened: [])
    patch(saved_choices, "save_links", lambda links: None)


def _rested_at_once(edited: Any) -> Any:
    """Return what takes a letter of the filter as the last one: fingers rest after each."""

    def rested(self: Any, text: str) -> None:
        timers: list[Any] = []
        parts = self._parts
        self._parts = parts._replace(set_timer=lambda delay, callback: timers.append(callback))
        try:
            edited(self, text)
        finally:
            self._parts = parts
        for each in timers:
            each()

    return rested


class Game(NamedTuple):
    """Keys for one sample."""

    name: str
    seed: int

    def keys(self) -> tuple[list[list[str]], tuple[int, int]]:
        """Return the bursts, and the size of the screen."""
        draw = random.Random(f"{self.seed} {self.name}")
        return [burst(draw) for _ in range(BURSTS)], draw.choice(SIZES)


class Played(NamedTuple):
    """What came of a game."""

    game: Game
    keys: int
    seconds: float
    fault: str


def play(game: Game) -> Played:
    """Press the keys of a game on both screens; return how it went."""
    unhurried_once()
    bursts, size = game.keys()
    began, fault = time.monotonic(), ""
    try:
        compare(known()[game.name], bursts, size)
    except Exception:
        fault = traceback.format_exc()
    return Played(game, sum(map(len, bursts)), time.monotonic() - began, fault)


@cache
def known() -> dict[str, list[Run]]:
    """Return all samples, read once a process."""
    return everything()


@cache
def unhurried_once() -> None:
    unhurried(setattr)


def games(names: Sequence[str], seed: int, count: int) -> Iterator[Game]:
    """Yield games of all samples in turn, with seeds that go on, for about so many keys."""
    while True:
        for name in names:
            game = Game(name, seed)
            yield game
            count -= sum(map(len, game.keys()[0]))
            if count <= 0:
                return
        seed += 1


def main() -> int:
    """Play, print each game and each fault, and return 1 where there was one."""
    parser = argparse.ArgumentParser("python -m tests.tracetui.ui.monkey", description=__doc__)
    parser.add_argument("keys", type=int, nargs="?", default=2000, help="how many, about")
    parser.add_argument("--seed", type=int, default=0, help="of the first round; the next ones count on")
    parser.add_argument("--jobs", type=int, default=1, help="processes beside each other")
    parser.add_argument("--only", metavar="SAMPLE:SEED", help="repeat the keys of one sample and seed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="monkey-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        if args.only:
            name, _, seed = args.only.rpartition(":")
            chosen = iter([Game(name, int(seed))])
        else:
            chosen = games(list(known()), args.seed, args.keys)
        context = multiprocessing.get_context("spawn")  # each with threads of its own
        with context.Pool(args.jobs) as pool:
            return account(pool.imap_unordered(play, chosen))


def account(played: Iterator[Played]) -> int:
    """Print what comes, and what it comes to; return 1 where there was a fault."""
    pressed = differ = number = 0
    began = time.monotonic()
    for game, keys, seconds, fault in played:
        number, pressed, differ = number + 1, pressed + keys, differ + bool(fault)
        print(f"{game.name}:{game.seed}: {keys} keys in {seconds:.1f} s, {pressed:,} in all", flush=True)
        if fault:
            print(fault, flush=True)
    took = time.monotonic() - began
    print(f"{pressed:,} keys in {number:,} games and {took:,.0f} s; in {differ} the screens differ or fail")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
