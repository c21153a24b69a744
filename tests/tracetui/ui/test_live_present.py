"""Live shows the present: the view it opens on, how fast it is now, and what it says of a run that grows."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from capture.native import tail
from capture.run import Run
from tests.tracetui.runs import MS, made
from tests.tracetui.ui.hand import press, screen, settle, until
from tracetui import cli
from tracetui.analysis import recent_stats
from tracetui.ui import app as explorer
from tracetui.ui.app import Explorer
from tracetui.ui.pages.bands import draw_header
from tracetui.ui.run_info import describe_run
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower
from tracetui.verbs import _options


def sped_up() -> Run:
    """Twenty steps of a second each and ten of half a second, of a token each."""
    rows: list[dict[str, Any]] = []
    clock = 0
    for step in range(30):
        took = (1000 if step < 20 else 500) * MS
        mine = {"t": clock, "step": step, "phase": "decode"}
        rows.append({"kind": "step", "name": "step", "dur": took, "tokens": 1, **mine})
        rows.append({"kind": "kernel", "name": "gemv", "dur": took // 2, "lens": "wall", **mine})
        clock += took
    return made(rows)


def test_the_head_tells_the_speed_of_the_present_beside_the_mean() -> None:
    """Ten tokens in the last five seconds, 30 in 25 seconds in all."""

    def head(width: int, *, growing: bool) -> str:
        run = sped_up()
        return "".join(s.text for s in draw_header(run, describe_run(run, growing=growing), None, width))

    assert "· 2 tok/s now, mean 1.2 " in head(100, growing=True)
    assert "· 2 tok/s now " in head(50, growing=True) and "mean" not in head(50, growing=True)
    assert "· 1.2 tok/s " in head(100, growing=False) and "now" not in head(100, growing=False)


def test_where_the_last_seconds_are_all_there_is_one_speed_is_told() -> None:
    run = sped_up()
    early = made(run.events.filter(run.events["step"] < 3).to_dicts())
    assert describe_run(early, growing=True).now_per_s is None


@pytest.mark.parametrize(("more", "view"), [((), ("now", "summary")), (("--view", "steps"), ("steps", None))])
def test_live_begins_with_the_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], view: tuple[str, str | None]
) -> None:
    asked: list[ScreenOptions] = []

    def shown(paths: list[str], options: ScreenOptions) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr(_options, "has_screen", lambda: True)
    monkeypatch.setattr(explorer, "run", shown)
    cli.main(["live", "-o", str(tmp_path / "p.jsonl"), *more, "--", sys.executable, "-c", "pass"])
    assert [(options.view, options.fallback_view) for options in asked] == [view]


@pytest.mark.parametrize("step", [1, None])
def test_where_there_are_no_steps_it_begins_with_the_summary(tmp_path: Path, step: int | None) -> None:
    path = tmp_path / "p.jsonl"
    row = {"kind": "kernel", "name": "attention", "t": 1000, "dur": 500, "lens": "wall"}
    path.write_text(json.dumps(row | ({} if step is None else {"step": step})) + "\n")
    app = Explorer(
        FileFollower(path, None, "now", fallback_view="summary"), ScreenOptions(view="now", follow=True)
    )

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "attention" if step is None else "Now")
        await settle(pilot)
        assert app.workspace.session.view == ("summary" if step is None else "now")
        assert "failed" not in "\n".join(screen(app))

    play_live(app, script)


def play_live(app: Explorer, script: Any, size: tuple[int, int] = (120, 30)) -> None:
    """The screen on a file that grows, through a script of keys."""

    async def session() -> None:
        async with app.run_test(size=size) as pilot:
            await script(app, pilot)

    asyncio.run(session())
    assert app.workspace.live is not None
    app.workspace.live.stop()


def steps_of(*lengths: int) -> list[dict[str, Any]]:
    """Rows of steps of so many ms, of a token each; half of a step is gemv, and head takes the rest."""
    rows: list[dict[str, Any]] = []
    clock = 0
    for step, ms in enumerate(lengths):
        work = {"kind": "kernel", "step": step, "phase": "decode", "lens": "wall"}
        rows += [
            {**work, "name": "gemv", "t": clock, "dur": 250 * MS},
            {**work, "name": "head", "t": clock + 250 * MS, "dur": (ms - 250) * MS},
            {**work, "kind": "step", "name": "step", "t": clock, "dur": ms * MS, "tokens": 1},
        ]  # fmt: skip
        clock += ms * MS
    return rows


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ([500] * 100, ""),
        ([500] * 95 + [1500] + [500] * 4, "step 95 took 1.500 s, 3.0× the median; most of it head +1.000 s"),
        ([500] * 80 + [1500] + [500] * 19, ""),  # it is no longer the present
        ([500] * 100 + [800] * 8, "1.25 tok/s in the last 5 seconds, 1.988 in the minute before"),
        ([500] * 15 + [1500], ""),  # too little is known of what is usual
        ([500 + 5 * i for i in range(100)], ""),  # it grows with the context, on its line
    ],
)
def test_what_leaves_the_line_of_the_minute_before_is_told(lengths: list[int], told: str) -> None:
    assert recent_stats.detect_slowdown(made(steps_of(*lengths))) == told


def test_an_alarm_stands_on_every_view_until_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "QUIET_S", 60.0)  # the file counts as growing, however long the test takes
    path = tmp_path / "p.jsonl"
    rows = steps_of(*[500] * 90, 1500, *[500] * 20)
    early = [row for row in rows if row["step"] <= 92]
    path.write_text("".join(json.dumps(row) + "\n" for row in early))
    app = Explorer(FileFollower(path, None, "kernels"), ScreenOptions(view="kernels", follow=True))

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        await until(app, pilot, "step 90 took 1.500 s, 3.0× the median")
        await press(pilot, "1")
        assert "step 90 took" in screen(app)[-2]
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[len(early) :])
        await until(app, pilot, "111 steps")
        await settle(pilot)
        assert "step 90" not in screen(app)[-2]

    play_live(app, script)
