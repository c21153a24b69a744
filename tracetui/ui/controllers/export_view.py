"""Write the current view to a file, or copy a row to the clipboard of the terminal."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError
from capture.files.atomic import write_atomically
from tracetui import glyphs, units
from tracetui.look import Look
from tracetui.svg_to_png import has_png_library, render_png
from tracetui.ui.controllers.base import Controller
from tracetui.ui.controllers.input_line import InputActions
from tracetui.ui.messages import StatusMessage
from tracetui.ui.pages.input_draft import InputDraft
from tracetui.ui.terminal import tty
from tracetui.views import Source, View, ink

FORMATS_BY_ENDING: Final = {
    ".md": "md", ".csv": "csv", ".json": "json", ".txt": "table", ".html": "html", ".svg": "svg",
    ".png": "png",
}  # fmt: skip
PICTURE_FORMATS: Final = ("svg", "png")
MOST_NUMBERED: Final = 100  # files of one view in a folder


class ViewExport(Controller):
    """Writes the view to a file, in the format of its ending, or sends a row or drawing to the clipboard."""

    def open_prompt(self) -> None:
        """Ask for the name of the file."""
        if not self._workspace.is_showing_view:
            return
        hint = f"Enter writes it, Tab changes the file type: {' '.join(list_endings())}"
        draft = InputDraft.from_text("export", hint, propose_name(self._workspace.view))
        self._input.open(draft, InputActions(self._write_file, complete=self._switch_ending))

    def _switch_ending(self, name: str) -> None:
        if self._input.draft is not None:
            self._input.replace_text(self._input.draft, switch_ending(name))

    def _write_file(self, name: str) -> None:
        """Write the current question in a thread; a picture is taken once the prompt is gone."""
        name, view, session = name.strip(), self._workspace.view, self._workspace.session
        sources = session.list_sources_for(view)
        is_picture = FORMATS_BY_ENDING.get(Path(name).suffix.lower()) in PICTURE_FORMATS

        def start() -> None:
            picture = self._parts.export_svg() if is_picture else None
            threading.Thread(target=write, args=(picture,), name="export", daemon=True).start()

        def write(picture: str | None) -> None:
            self._parts.post(StatusMessage(write_view(name, picture, view, sources, session.look)))

        self._parts.call_after_refresh(start)

    def copy(self, format_row: Callable[[Mapping[str, Any]], str]) -> None:
        """Copy the row under the cursor, or the whole drawing; terminals do not confirm it."""
        if not self._workspace.options.clipboard:
            self._renderer.show_message("the clipboard is disabled (--no-clipboard)")
            return
        picture, text = self._workspace.picture, ""
        if self._renderer.main_screen.shows_table:
            text = format_row(self._renderer.table.row)
        elif picture is not None:
            text = ink.format_plain(picture.lines or ())
        sequence = tty.build_clipboard_sequence(text)
        if sequence is None:
            self._renderer.show_message(f"{len(text):,} characters do not fit the clipboard; x writes a file")
        else:
            self._parts.write_to_terminal(sequence)
            self._renderer.show_message(f"{len(text.encode()):,} bytes sent to the terminal's clipboard")


def write_view(name: str, picture: str | None, view: View, sources: Sequence[Source], look: Look) -> str:
    """Write a view, or a picture of it, to a file; return a message for the status line."""
    from tracetui.report_formats import format_report

    try:
        format = find_format(name)
        text = picture if picture is not None else format_report(view, sources, look, format)
        content = render_png(text) if format == "png" else text.encode("utf-8", "backslashreplace")
        path = save_file(name, content)
        return clean(f"wrote {path.name} in {path.absolute().parent}", 500)
    except CaptureError as e:
        reason = f" ({e.why})" if e.why else f"; {e.todo}" if not e.where else ""
        return f"{e.where or name}: {e.what}{reason}"


def format_row(row: Mapping[str, Any]) -> str:
    """Return a line per column: heading, tab, value."""
    return "\n".join(f"{units.format_heading(c)}\t{_format_cell(c, v)}" for c, v in row.items())


def format_row_markdown(row: Mapping[str, Any]) -> str:
    """Return a Markdown table of one row."""
    cells = [_format_cell(c, v).replace("|", "\\|") for c, v in row.items()]
    heads = [units.format_heading(c) for c in row]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), cells))


def _format_cell(column: str, value: Any) -> str:
    return glyphs.draw_sparkline(value, 20) if isinstance(value, list) else units.format_cell(column, value)


def find_format(name: str) -> str:
    """Return the format for the ending of a file name. Raise UsageError for an unknown ending."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS_BY_ENDING:
        raise UsageError("unknown file ending", todo=f"use {', '.join(FORMATS_BY_ENDING)}")
    return FORMATS_BY_ENDING[suffix]


def list_endings() -> list[str]:
    """Return the endings of files that can be written here: `.png` needs a library."""
    return [ending for ending in FORMATS_BY_ENDING if ending != ".png" or has_png_library()]


def propose_name(view: View) -> str:
    """Return an unused file name: `.md` for a view of two runs, `.csv` for the others."""
    stem, suffix = view.name, ".md" if view.run_count == 2 else ".csv"
    names = (f"{stem}{number}{suffix}" for number in ("", *(f"-{n}" for n in range(2, MOST_NUMBERED))))
    return next((name for name in names if not Path(name).exists()), f"{stem}{suffix}")


def switch_ending(name: str) -> str:
    """Return the file name with the next ending."""
    path, endings = Path(name), list_endings()
    suffix = path.suffix.lower()
    following = endings.index(suffix) + 1 if suffix in endings else 0
    stem = name.removesuffix(path.suffix) if suffix in FORMATS_BY_ENDING else name
    return stem + endings[following % len(endings)]


def save_file(name: str, content: bytes) -> Path:
    """Write a new file, completely or not at all. Raise UsageError if it exists."""
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        path = Path(name)
    with write_atomically(path) as file:
        file.write(content)
    return path
