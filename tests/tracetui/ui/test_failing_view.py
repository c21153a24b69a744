"""Whatever goes wrong in a view is one sentence in its pane, and the rest of the screen lives."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from tests.tracetui.ui.hand import NAMES, answer, decode, play, press, screen
from tracetui.ui.app import Explorer
from tracetui.views import load_view

FAULT = 70


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


def fails_in(part: str, error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps view fails in its answer or its drawing; every other view is asked after it, and answers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))

    async def script(app: Explorer, pilot: Pilot[Any]) -> None:
        bad: dict[str, Any] = {part: raising(error)}
        app.workspace.views = [replace(v, **bad) if v.name == "steps" else v for v in app.workspace.views]
        tabs = [v.name for v in app.workspace.tabs]
        await press(pilot, str(tabs.index("steps") + 1))
        shown = "\n".join(screen(app))
        assert f"the steps view failed: {type(error).__name__}" in " ".join(shown.split())
        assert "Traceback" not in shown and 'File "' not in shown
        for name in ("kernels", "layers", "summary"):
            await press(pilot, str(tabs.index(name) + 1))
            assert app.workspace.picture is not None and app.workspace.picture.question.view.name == name
            assert not app.workspace.picture.is_refusal
        await press(pilot, str(tabs.index("kernels") + 1))
        assert any(NAMES[0] in line for line in screen(app)) and answer(app).rows.height == len(NAMES)
        await press(pilot, "s")  # sorting is alive too
        assert not app.workspace.picture.is_refusal

    app = play(script, [decode()])
    assert app.workspace.exit_code == FAULT
    (crash,) = (folder / "tracetui").glob("crash-*.txt")
    assert "Traceback" in crash.read_text()


ERRORS: Sequence[BaseException] = (
    KeyError("planted"),
    ZeroDivisionError("planted"),
    RecursionError("planted"),
    pl.exceptions.ColumnNotFoundError("planted"),
    pl.exceptions.PanicException("planted"),  # is no Exception
)


@pytest.mark.corpus
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_a_view_that_cannot_answer(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_in("answer", error, tmp_path, monkeypatch)


def test_a_view_that_cannot_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_in("draw", KeyError("planted"), tmp_path, monkeypatch)


def test_a_report_of_a_view_that_panics_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tracetui import views
    from tracetui.cli import main

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    panic = replace(load_view("kernels"), answer=raising(pl.exceptions.PanicException("planted")))
    monkeypatch.setattr(views, "_load_view_module", lambda module: panic)
    assert main(["report", "kernels", "sample:decode"]) == FAULT
    actual = capsys.readouterr()
    assert (actual.out, actual.err.count("\n")) == ("", 1)
    assert "internal error: PanicException: planted" in actual.err
