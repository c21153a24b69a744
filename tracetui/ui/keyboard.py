"""Run keys in the order typed: as text while the input line is open, else as commands of the key table."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct, field

from tracetui.ui.answer_updates import AnswerUpdater
from tracetui.ui.controllers.column_picker import ColumnPicker
from tracetui.ui.controllers.cursor_moves import CursorController, TimelineCursor
from tracetui.ui.controllers.engine_control import EngineControl
from tracetui.ui.controllers.export_view import Clipboard, ViewExport
from tracetui.ui.controllers.filter_prompt import FilterController
from tracetui.ui.controllers.input_line import InputLine
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.controllers.row_actions import RowLinks, RowRemarks
from tracetui.ui.controllers.run_actions import FilePrompt, RunActions
from tracetui.ui.controllers.run_updates import RunUpdates
from tracetui.ui.key_table import (
    DIGITS,
    LEADING_ELSEWHERE,
    NEEDING_ALL_VIEWS,
    NEEDING_AN_ANSWER,
    OPENING_THE_LINE,
    WHILE_LOADING,
)
from tracetui.ui.pages.help_page import GuideList, HelpPage
from tracetui.ui.pages.list_pages import ColumnList, RunList
from tracetui.ui.pages.text_pages import LoadingPage, RefusedPage
from tracetui.ui.session_commands import COMMANDS
from tracetui.ui.workspace import Workspace

STALE_KEY_S: Final = 1.0  # keys that waited longer are skipped by one that leads elsewhere


class KeyPress(Struct, frozen=True):
    """A typed key or, without a key, pasted text."""

    key: str
    text: str | None
    time_s: float = field(default_factory=time.monotonic)

    @property
    def is_paste(self) -> bool:
        return not self.key


class Keyboard:
    """Queue of keys, so that keys typed ahead do the same as keys typed one by one.

    A command that must wait for an answer makes the keys behind it wait, too. A key that leads elsewhere
    (another view, quit) skips keys that have waited for longer than STALE_KEY_S. `Explorer.on_event` says why
    Textual's bindings do not do this.
    """

    def __init__(
        self,
        commands: Mapping[str, Callable[[], object]],
        names_by_key: Mapping[str, str],
        workspace: Workspace,
        answers: AnswerUpdater,
        input_line: InputLine,
        files: FilePrompt,
    ) -> None:
        """`commands` are functions by name, `names_by_key` their names by key."""
        self.commands, self._names = commands, names_by_key
        self._workspace, self._answers = workspace, answers
        self._input, self._files = input_line, files
        self._waiting: deque[KeyPress] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def press(self, key: str, character: str | None) -> None:
        """Run or queue a typed key."""
        self._queue_press(KeyPress(key, character))

    def paste(self, text: str) -> None:
        """Insert or queue pasted text."""
        self._queue_press(KeyPress("", text))

    def run_command(self, name: str) -> None:
        """Run a command by its name, as its key would."""
        self.commands[name]()

    def run_waiting_keys(self) -> None:
        """Run the queued keys up to the first that still has to wait."""
        while self._waiting and not self._should_wait(self._waiting[0]):
            self._run_press(self._waiting.popleft())

    def skip_stale_keys(self) -> None:
        """Drop keys that have waited for too long before a key that leads elsewhere."""
        if not self._waiting or time.monotonic() < self._waiting[0].time_s + STALE_KEY_S:
            return
        for index, name in enumerate(self._names.get(press.key) for press in self._waiting):
            if name in OPENING_THE_LINE:
                return  # what follows may be text
            if name in LEADING_ELSEWHERE:
                for _ in range(index):
                    self._waiting.popleft()
                self.run_waiting_keys()
                return

    def _queue_press(self, press: KeyPress) -> None:
        if self._names.get(press.key) == "quit" and not self._can_be_text():
            self._waiting.clear()
        self._waiting.append(press)
        self.skip_stale_keys()
        self.run_waiting_keys()

    def _can_be_text(self) -> bool:
        """Whether a key that is pressed now may be text for the input line."""
        opens = any(self._names.get(press.key) in OPENING_THE_LINE for press in self._waiting)
        return self._is_typing or opens

    @property
    def _is_typing(self) -> bool:
        return self._workspace.draft is not None

    def _should_wait(self, press: KeyPress) -> bool:
        """Whether a command would act on something else now than what its key was pressed for.

        That is so before anything is read, before all tabs are known, and, for commands on the displayed
        picture, until that answers the question of the session.
        """
        workspace, name = self._workspace, self._names.get(press.key)
        if name is None or self._is_typing:
            return False
        if isinstance(workspace.page, LoadingPage):
            return name not in WHILE_LOADING
        if name in NEEDING_ALL_VIEWS and not workspace.has_all_views:
            return not isinstance(workspace.page, RefusedPage)
        return workspace.is_showing_view and self._answers.is_stale and name in NEEDING_AN_ANSWER

    def _run_press(self, press: KeyPress) -> None:
        if press.is_paste:
            self._insert(press.text or "")
        elif self._is_typing:
            self._input.press(press.key, press.text)
        elif press.key in self._names:
            self.run_command(self._names[press.key])

    def _insert(self, text: str) -> None:
        """Put pasted text into the input line; in the list of runs it is the path of another one."""
        if self._is_typing:
            self._input.paste(text)
        elif isinstance(self._workspace.page, RunList):
            self._files.open_prompt(text.strip())


class Controllers(NamedTuple):
    """The objects that carry out commands."""

    navigation: Navigation
    cursor: CursorController
    slices: TimelineCursor
    filter: FilterController
    export: ViewExport
    clipboard: Clipboard
    runs: RunActions
    files: FilePrompt
    columns: ColumnPicker
    links: RowLinks
    remarks: RowRemarks
    engine: EngineControl
    updates: RunUpdates


def build_key_commands(
    workspace: Workspace, parts: Controllers, app: Mapping[str, Callable[[], object]]
) -> dict[str, Callable[[], object]]:
    """Return the function of each command of the key table; `app` has those that need Textual."""
    on_session = {
        name: partial(parts.navigation.apply_command, command)
        for name, command in COMMANDS.items()
        if name != "back"
    }
    tabs = {f"tab_{n}": partial(parts.navigation.open_tab, n) for n in range(1, DIGITS + 1)}
    moves, others = _build_move_commands(workspace, parts), _build_other_commands(workspace, parts)
    return {**on_session, **tabs, **moves, **others, **app}


def _build_move_commands(workspace: Workspace, parts: Controllers) -> dict[str, Callable[[], object]]:
    cursor, navigation = parts.cursor, parts.navigation
    return {
        "move_down": cursor.move_down,
        "move_up": cursor.move_up,
        "move_right": partial(_move_sideways, workspace, parts, 1),
        "move_left": partial(_move_sideways, workspace, parts, -1),
        "page_down": cursor.move_page_down,
        "page_up": cursor.move_page_up,
        "half_down": cursor.move_half_page_down,
        "half_up": cursor.move_half_page_up,
        "first": cursor.move_to_first,
        "last": cursor.move_to_last,
        "next_match": partial(_move_to_match, parts, 1),
        "previous_match": partial(_move_to_match, parts, -1),
        "launch": parts.slices.follow_launch,
        "next_view": navigation.open_next_view,
        "previous_view": navigation.open_previous_view,
        "back": partial(navigation.go_back, COMMANDS["back"]),
    }


def _build_other_commands(workspace: Workspace, parts: Controllers) -> dict[str, Callable[[], object]]:
    navigation, runs, engine = parts.navigation, parts.runs, parts.engine
    return {
        "quit": navigation.quit,
        "help": navigation.toggle_help,
        "enter": partial(_enter_row, workspace, parts),
        "filter": partial(_open_filter, workspace, parts),
        "mark": parts.remarks.toggle_mark,
        "note": parts.remarks.open_note,
        "link": parts.links.toggle,
        "runs": runs.toggle_run_list,
        "diff": runs.open_diff,
        "pin": runs.toggle_baseline,
        "columns": parts.columns.toggle_list,
        "copy_row": parts.clipboard.copy_row,
        "copy_markdown": parts.clipboard.copy_markdown,
        "export": parts.export.open_prompt,
        "pause": parts.updates.toggle_pause,
        "mode": engine.switch_mode,
        "prompt": engine.open_prompt,
        "restart": engine.restart,
        "engine": engine.open_arguments,
        "output": engine.toggle_output,
    }


def _enter_row(workspace: Workspace, parts: Controllers) -> None:
    """Choose the row under the cursor, which does what the page is for."""
    page = workspace.page
    if isinstance(page, RunList):
        parts.runs.choose_run(page)
    elif isinstance(page, ColumnList):
        parts.columns.toggle_column(page)
    elif isinstance(page, HelpPage):
        parts.navigation.show_page(GuideList())
    elif isinstance(page, GuideList):
        parts.navigation.open_guide(page)
    else:
        parts.runs.open_row()


def _move_sideways(workspace: Workspace, parts: Controllers, by: int) -> None:
    """Move by columns or cells; in the list of columns, move the column under the cursor."""
    if isinstance(workspace.page, ColumnList):
        parts.columns.move_column(by)
    elif by > 0:
        parts.cursor.move_right()
    else:
        parts.cursor.move_left()


def _move_to_match(parts: Controllers, direction: int) -> None:
    """Move to the next or previous row that matches the last filter; on a timeline, to a slice."""
    if parts.slices.is_shown:
        parts.slices.move_to_next(direction)
    else:
        parts.filter.move_to_match(direction)


def _open_filter(workspace: Workspace, parts: Controllers) -> None:
    """Open the filter; in the list of runs, ask for the path of another one."""
    if workspace.is_showing_view:
        parts.filter.open_prompt()
    elif isinstance(workspace.page, RunList):
        parts.files.open_prompt()
