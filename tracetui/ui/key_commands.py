"""The one table from the name of a command to what does it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tracetui.ui.commands import COMMANDS
from tracetui.ui.controllers.arrivals import Arrivals
from tracetui.ui.controllers.columns import Columns
from tracetui.ui.controllers.cursor import Cursor
from tracetui.ui.controllers.engine import EngineControl
from tracetui.ui.controllers.export import Clipboard, Export
from tracetui.ui.controllers.filter import Filter
from tracetui.ui.controllers.input import InputLine
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.controllers.remarks import RowRemarks
from tracetui.ui.controllers.runs import FilePrompt, Links, Runs
from tracetui.ui.controllers.timeline import Slices
from tracetui.ui.keys import DIGITS, NEEDING_ALL_VIEWS, NEEDING_AN_ANSWER, WHILE_LOADING
from tracetui.ui.pages.columns import ColumnList
from tracetui.ui.pages.guides import GuideList
from tracetui.ui.pages.help import HelpPage
from tracetui.ui.pages.runs import RunList
from tracetui.ui.pages.texts import LoadingPage, RefusedPage
from tracetui.ui.questions import Questions
from tracetui.ui.workspace import Workspace


class Controllers(NamedTuple):
    """Everything that keys are answered by."""

    navigation: Navigation
    cursor: Cursor
    slices: Slices
    filter: Filter
    export: Export
    clipboard: Clipboard
    runs: Runs
    files: FilePrompt
    columns: Columns
    links: Links
    remarks: RowRemarks
    engine: EngineControl
    arrivals: Arrivals


def key_commands(
    workspace: Workspace, parts: Controllers, app: Mapping[str, Callable[[], object]]
) -> dict[str, Callable[[], object]]:
    """Return what each command of the key table does; `app` has those that only Textual can do."""
    looks = {
        name: partial(parts.navigation.change, command)
        for name, command in COMMANDS.items()
        if name != "back"
    }
    tabs = {f"tab_{n}": partial(parts.navigation.open_tab, n) for n in range(1, DIGITS + 1)}
    return {**looks, **tabs, **_moves(workspace, parts), **_others(workspace, parts), **app}


def _moves(workspace: Workspace, parts: Controllers) -> dict[str, Callable[[], object]]:
    cursor, navigation = parts.cursor, parts.navigation
    return {
        "move_down": cursor.down,
        "move_up": cursor.up,
        "move_right": partial(_sideways, workspace, parts, 1),
        "move_left": partial(_sideways, workspace, parts, -1),
        "page_down": cursor.page_down,
        "page_up": cursor.page_up,
        "half_down": cursor.half_down,
        "half_up": cursor.half_up,
        "first": cursor.first,
        "last": cursor.last,
        "next_match": partial(_match, parts, 1),
        "previous_match": partial(_match, parts, -1),
        "launch": parts.slices.follow_launch,
        "next_view": navigation.next_view,
        "previous_view": navigation.previous_view,
        "back": partial(navigation.back, COMMANDS["back"]),
    }


def _others(workspace: Workspace, parts: Controllers) -> dict[str, Callable[[], object]]:
    navigation, runs, engine = parts.navigation, parts.runs, parts.engine
    return {
        "quit": navigation.quit,
        "help": navigation.toggle_help,
        "enter": partial(_enter, workspace, parts),
        "filter": partial(_filter, workspace, parts),
        "mark": parts.remarks.mark,
        "note": parts.remarks.open_note,
        "link": parts.links.toggle,
        "runs": runs.list_runs,
        "diff": runs.diff,
        "pin": runs.pin,
        "columns": parts.columns.toggle_list,
        "copy_row": parts.clipboard.copy_row,
        "copy_markdown": parts.clipboard.copy_markdown,
        "export": parts.export.open,
        "pause": parts.arrivals.toggle_pause,
        "mode": engine.next_mode,
        "prompt": engine.open_prompt,
        "restart": engine.restart,
        "engine": engine.open_arguments,
        "output": engine.toggle_output,
    }


def _enter(workspace: Workspace, parts: Controllers) -> None:
    """Take the row under the cursor, for what the page is for."""
    page = workspace.page
    if isinstance(page, RunList):
        parts.runs.choose(page)
    elif isinstance(page, ColumnList):
        parts.columns.choose(page)
    elif isinstance(page, HelpPage):
        parts.navigation.show_page(GuideList())
    elif isinstance(page, GuideList):
        parts.navigation.open_guide(page)
    else:
        parts.runs.enter()


def _sideways(workspace: Workspace, parts: Controllers, by: int) -> None:
    """Go to the next or the previous column or cell; in the list of columns move the one under the cursor."""
    if isinstance(workspace.page, ColumnList):
        parts.columns.move(by)
    elif by > 0:
        parts.cursor.right()
    else:
        parts.cursor.left()


def _match(parts: Controllers, direction: int) -> None:
    """Go to the next or the previous row that fits the last expression; of a timeline to a slice."""
    if parts.slices.in_sight:
        parts.slices.next(direction)
    else:
        parts.filter.match(direction)


def _filter(workspace: Workspace, parts: Controllers) -> None:
    """Ask for a pattern; where runs are listed, for the path of another one."""
    if workspace.shows_view:
        parts.filter.open()
    elif isinstance(workspace.page, RunList):
        parts.files.open()


def has_to_wait(workspace: Workspace, questions: Questions, name: str) -> bool:
    """Return whether a command would meet something else now than what its key was pressed for.

    That is so while nothing is read, while the tabs are not known, and, for what acts on the picture in
    sight, until that answers what is asked.
    """
    if isinstance(workspace.page, LoadingPage):
        return name not in WHILE_LOADING
    if name in NEEDING_ALL_VIEWS and not workspace.knows_all_views:
        return not isinstance(workspace.page, RefusedPage)
    return workspace.shows_view and questions.unanswered and name in NEEDING_AN_ANSWER


def paste_text(workspace: Workspace, line: InputLine, files: FilePrompt, text: str) -> None:
    """Put a text into the input line; where runs are listed, take it for the path of another one."""
    if line.is_open:
        line.paste(text)
    elif isinstance(workspace.page, RunList):
        files.open(text.strip())
