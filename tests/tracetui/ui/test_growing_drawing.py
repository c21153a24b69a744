"""A drawing that is longer than the pane, of a run that grows."""

import sys
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tests.tracetui.ui.hand import attend, press, screen, until
from tracetui.process import EngineProcess
from tracetui.ui.app import Explorer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.workers.follow_file import FileFollower

TRAINER = """
import json, sys
out = open(sys.argv[1], "a", buffering=1)
def say(**line): print(json.dumps(line), file=out)
say(kind="run", schema=1, name="toy", id=str(id(out)), meta={"model": "toy-1b"})
step = 0
for order in map(json.loads, sys.stdin):
    if order["do"] == "quit":
        break
    step += 1
    for phase in ("forward", "backward", "optimizer"):
        for n in range(6):
            say(kind="kernel", name=f"{phase} gemm {n}", dur=100 + n, step=step, phase=phase, lens="wall")
    say(kind="step", name="train", t=step * 10_000, dur=9000, step=step)
"""


def test_it_stays_where_it_was_scrolled_to(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    engine = EngineProcess([sys.executable, "-c", TRAINER, str(path)])
    app = Explorer(
        FileFollower(path, engine, "training"), ScreenOptions(view="training", follow=True, engine=engine)
    )

    async def script(app: Explorer, pilot: "Pilot[Any]") -> None:
        assert engine.send({"do": "mode"})
        await until(app, pilot, "time of each phase")
        await press(pilot, "ctrl+d")
        assert "time of each phase" not in "\n".join(screen(app))
        top = app.main_screen.drawing.top_line
        assert engine.send({"do": "mode"})
        await until(app, pilot, "totals are of 2 steps")
        assert app.main_screen.drawing.top_line == top > 0

    attend(app, script)
