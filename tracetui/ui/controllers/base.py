"""What controllers share: the state, what draws and answers it, the input line, and Textual's services."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from tracetui.ui.answer_updates import AnswerUpdater
from tracetui.ui.controllers.input_line import InputLine
from tracetui.ui.pages import Page, ViewPage
from tracetui.ui.renderer import Renderer, Timer
from tracetui.ui.workers.feed import Post
from tracetui.ui.workspace import Workspace


class RunAsync(Protocol):
    """Runs a coroutine in the background, and cancels the one before of the same group."""

    def __call__(self, work: Coroutine[Any, Any, None], *, group: str) -> object: ...


class ScreenParts(NamedTuple):
    """The parts that the app builds, and what it does for controllers."""

    workspace: Workspace
    renderer: Renderer
    answers: AnswerUpdater
    input_line: InputLine
    post: Post
    run_async: RunAsync
    set_timer: Timer
    call_after_refresh: Callable[[Callable[[], None]], object]
    export_svg: Callable[[], str]  # of the screen
    write_to_terminal: Callable[[str], object]
    close: Callable[[int], object]  # ends the app with an exit code


class Controller:
    """Carries out commands of one task."""

    def __init__(self, parts: ScreenParts) -> None:
        self._parts = parts
        self._workspace, self._renderer, self._answers = parts.workspace, parts.renderer, parts.answers
        self._input = parts.input_line

    def show_page(self, page: Page) -> None:
        self._workspace.page = page
        if isinstance(page, ViewPage):
            self._answers.update()
        else:
            self._renderer.show_page()

    def _change_look(self, **change: Any) -> None:
        """Change fields of the look, and show the answer."""
        self._answers.show_session(self._workspace.session.with_look(**change))
