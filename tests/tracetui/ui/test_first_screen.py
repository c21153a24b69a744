"""The summary as the first screen: what it sends a reader to is where its keys lead."""

from typing import Any

from textual.pilot import Pilot

from tests.tracetui.runs import decode
from tests.tracetui.ui.hand import play, press, screen, until
from tracetui.ui.app import Explorer
from tracetui.ui.options import Options


def test_each_key_of_the_first_screen_leads_to_what_it_names() -> None:
    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        for key, view, word in (("3", "growth", "attn.core grows"), ("2", "kernels", "attention takes")):
            await until(app, pilot, word)
            (line,) = (line for line in screen(app) if word in line)
            assert key == line.removeprefix("next").split()[0]
            await press(pilot, key)
            assert app.workspace.session.view == view
            await press(pilot, "1")

    play(script, [decode()], Options(view="summary"))
