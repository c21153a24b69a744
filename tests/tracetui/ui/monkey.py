"""Random keys for the screen, and an oracle: what must stand there is computed anew from the session.

    python -m tests.tracetui.ui.monkey [KEYS [SEED]]

It plays over made runs, every fixture and every installed sample, and exits with 1 where screens differ.
Two screens get the same keys: one a burst at once, the other one key after the other, each waited for.
After every burst both must show the same, and it must be the answer to what is asked.
"""

import asyncio
import contextlib
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from textual import events
from textual.pilot import Pilot

from capture.captures import NONE
from capture.errors import CaptureError
from capture.open import load
from capture.run import Run
from tests.tracetui import runs as made
from tests.tracetui.runs import recording
from tests.tracetui.ui.hand import decode, screen, settle
from tracetui import kept_links
from tracetui.samples import SAMPLES, sample
from tracetui.ui import keyboard, questions, renderer
from tracetui.ui.app import Explorer
from tracetui.ui.controllers import filter
from tracetui.ui.controllers.runs import FilePrompt
from tracetui.ui.keys import KEYS, TABS
from tracetui.ui.messages import RunsChanged
from tracetui.ui.options import Options
from tracetui.ui.run_info import describe_run
from tracetui.ui.workers.ask import make_picture
from tracetui.views import views

Pilots = Pilot[Any]

LEFT_OUT: Final = ("native", "pictures")  # of the fixtures: told by `samples`, no profiles
FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
# These leave the screen, or do something whose outcome comes from outside of it.
NEVER: Final = ("quit", "palette", "suspend", "export", "copy_row", "copy_markdown")
TYPED: Final = ("a", "m", "(", ".", "n", "backspace", "ctrl+u")


def burst(draw: random.Random) -> list[str]:
    """Some keys, the more usual ones more often; a filter is typed and closed again."""
    names = [name for key in KEYS if key.do not in NEVER for name in key.keys.split(",")]
    keys: list[str] = []
    for _ in range(draw.randint(1, 9)):
        match draw.random():
            case x if x < 0.2:
                keys.append(draw.choice(list(TABS)))
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
    return found | {f"sample {name}": load(sample(name), cache=False) for name in SAMPLES}


def _readable(folder: Path) -> list[Run]:
    runs: list[Run] = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with contextlib.suppress(CaptureError):
            runs += load(path, cache=False, capture=NONE)
    return runs


def _some(runs: list[Run], at_once: int = 3) -> Iterator[list[Run]]:
    for begin in range(0, len(runs), at_once):
        yield runs[begin : begin + at_once]


class Hands:
    """One screen and the way in which its keys are pressed."""

    def __init__(self, runs: Sequence[Run], size: tuple[int, int], *, slowly: bool) -> None:
        self._runs, self._size, self._slowly = runs, size, slowly

    def play(self, bursts: Sequence[Sequence[str]]) -> list[list[str]]:
        """What stands on the screen after each burst."""
        return asyncio.run(self._play(bursts))

    async def _play(self, bursts: Sequence[Sequence[str]]) -> list[list[str]]:
        app, screens = Explorer(None, Options(view="kernels", clipboard=False)), []
        async with app.run_test(size=self._size) as pilot:
            app.post_message(RunsChanged(self._runs, [describe_run(r) for r in self._runs], views()))
            await settle(pilot)
            for keys in bursts:
                for key in keys:
                    app.post_message(events.Key(key, key if len(key) == 1 else None))
                    if self._slowly:
                        await self._rest(app, pilot)
                await self._rest(app, pilot)
                screens.append(screen(app))
                judge(app)
        return screens

    async def _rest(self, app: Explorer, pilot: Pilots) -> None:
        await pilot.pause()
        if app.workspace.draft is not None:
            await pilot.pause(2 * filter.TYPING)
        await settle(pilot)


def judge(app: Explorer) -> None:
    """What is in sight is what the views say to the session, drawn for its look."""
    workspace, picture, main = app.workspace, app.workspace.picture, app.main
    assert picture is not None and workspace.exit_code == 0
    if picture.refused:
        return
    question = workspace.question
    assert picture.question.is_same(question)
    fresh = make_picture(question, workspace.session.look, picture.size)
    assert picture.answer.rows.equals(fresh.answer.rows) and picture.answer.notes == fresh.answer.notes
    assert picture.lines == fresh.lines
    if workspace.shows_view and not workspace.doubted:
        assert main.shows_table == (picture.lines is None)
        shown = screen(app)
        if picture.lines is None:
            assert main.table.sheet is picture.sheet
            assert main.table.cursor == max(
                0, min(workspace.session.look.cursor[0], picture.answer.rows.height - 1)
            )
        elif picture.lines:
            assert picture.size == app.renderer.pane_size()
            text = "".join(span.text for span in picture.lines[main.top])[: picture.size.width].rstrip()
            assert shown[2].rstrip() == text, (shown[2], text)


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
    """Nothing that happens after a while happens here, and nothing is kept outside the screen."""
    patch(renderer, "MESSAGE_SECONDS", 3600.0)
    patch(questions, "SLOW", 3600.0)
    patch(keyboard, "PATIENCE", 3600.0)
    patch(filter, "TYPING", 0.01)
    patch(FilePrompt, "open", lambda self, path="": None)
    patch(kept_links, "keep", lambda links: None)


def main() -> int:
    count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 2000), (2, 0)))
    unhurried(setattr)
    pressed = differ = 0
    known = everything()
    while pressed < count:
        for name, runs in known.items():
            if pressed >= count:
                break
            draw = random.Random(f"{seed} {name}")
            bursts = [burst(draw) for _ in range(12)]
            size = draw.choice([(80, 24), (120, 40), (100, 14)])
            pressed += sum(map(len, bursts))
            print(f"{name} seed {seed} {size[0]}x{size[1]}: {pressed:,} keys", flush=True)
            try:
                compare(runs, bursts, size)
            except Exception:
                differ += 1
                traceback.print_exc(file=sys.stdout)
        seed += 1
    print(f"{pressed:,} keys over {len(known)} samples, {differ} times the screens differ or fail")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
