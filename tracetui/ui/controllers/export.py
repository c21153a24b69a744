"""Writing what is in sight: to a file, or to the terminal's clipboard."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from capture.errors import CaptureError
from capture.run import Run
from capture.text import clean
from tracetui.look import Look
from tracetui.raster import png
from tracetui.ui import export_file, row_text
from tracetui.ui.controllers.input import Entry, InputLine
from tracetui.ui.messages import Notice
from tracetui.ui.pages.prompt import Draft
from tracetui.ui.renderer import Renderer
from tracetui.ui.terminal import tty
from tracetui.ui.workers.feed import Post
from tracetui.ui.workspace import Workspace
from tracetui.views import View

Write = Callable[[str], object]


class Export:
    """Writes the view to a file whose name is asked for."""

    def __init__(
        self,
        workspace: Workspace,
        input_line: InputLine,
        screenshot: Callable[[], str],
        post: Post,
        after_refresh: Callable[[Callable[[], None]], object],
    ) -> None:
        self._workspace, self._input = workspace, input_line
        self._screenshot, self._post, self._after_refresh = screenshot, post, after_refresh

    def open(self) -> None:
        """Ask for the name of the file, while a view is in sight."""
        if not self._workspace.shows_view:
            return
        hint = f"Enter writes it, Tab goes on: {' '.join(export_file.FORMATS)}"
        draft = Draft.of("export", hint, export_file.proposed(self._workspace.view))
        self._input.open(draft, Entry(self._write, completed=self._next_ending))

    def _next_ending(self, name: str) -> None:
        if self._input.draft is not None:
            self._input.replace(self._input.draft, export_file.other_ending(name))

    def _write(self, name: str) -> None:
        """Write from the question that is asked at this moment; a picture once the prompt is gone."""
        workspace, name = self._workspace, name.strip()
        view, look = workspace.view, workspace.session.look
        runs = workspace.session.runs_for(view)

        def start() -> None:
            picture = self._screenshot() if export_file.is_picture(name) else None
            threading.Thread(
                target=lambda: self._post(Notice(export_view(name, picture, view, runs, look))),
                name="export",
                daemon=True,
            ).start()

        self._after_refresh(start)


def export_view(name: str, picture: str | None, view: View, runs: Sequence[Run], look: Look) -> str:
    """Write a view, or a picture of it, to a file; return what became of it in a sentence."""
    from tracetui.report import report

    try:
        format = export_file.format_of(name)
        text = picture if picture is not None else report(view, runs, look, format)
        content = png(text) if format == "png" else text.encode("utf-8", "backslashreplace")
        return f"wrote {clean(str(export_file.save(name, content)), 500)}"
    except CaptureError as e:
        return f"{e.where or name}: {e.what}" + (
            f" ({e.why})" if e.why else f"; {e.todo}" if not e.where else ""
        )


class Clipboard:
    """Hands what is in sight to the terminal; whether it arrives in a clipboard, only the terminal knows."""

    def __init__(self, workspace: Workspace, renderer: Renderer, write: Write) -> None:
        self._workspace, self._renderer, self._write = workspace, renderer, write

    def copy_row(self) -> None:
        self._copy(row_text.plain)

    def copy_markdown(self) -> None:
        self._copy(row_text.markdown)

    def _copy(self, format_row: Callable[[Mapping[str, Any]], str]) -> None:
        if not self._workspace.options.clipboard:
            self._renderer.tell("the clipboard is off (--no-clipboard)")
            return
        text = self._text(format_row)
        sequence = tty.clipboard(text)
        if sequence is None:
            self._renderer.tell(f"{len(text):,} characters are too many for a clipboard; x writes a file")
        else:
            self._write(sequence)
            self._renderer.tell(f"{len(text.encode()):,} bytes sent to the terminal's clipboard")

    def _text(self, format_row: Callable[[Mapping[str, Any]], str]) -> str:
        """Return the row under the cursor; of a drawing all of it."""
        if self._renderer.main.shows_table:
            return format_row(self._renderer.table.row)
        picture = self._workspace.picture
        return row_text.drawing(picture.lines or ()) if picture is not None else ""
