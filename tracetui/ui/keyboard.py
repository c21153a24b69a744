"""Run keys in the order typed: as text while the input line is open, else as commands of the key table."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct, field

from tracetui.ui.controllers.base import ScreenParts
from tracetui.ui.controllers.column_picker import ColumnPicker
from tracetui.ui.controllers.cursor_moves import CursorController
from tracetui.ui.controllers.engine_control import EngineControl
from tracetui.ui.controllers.export_view import ViewExport, format_row, format_row_markdown
from tracetui.ui.controllers.filter_prompt import FilterController
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.controllers.row_actions import PAIRED_ROWS, RowActions
from tracetui.ui.controllers.run_actions import RunActions
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
from tracetui.ui.pages.list_pages import ColumnList, RowHistory, RunList
from tracetui.ui.pages.text_pages import LoadingPage, RefusedPage
from tracetui.ui.session_commands import COMMANDS

Action = Callable[[], object]
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
        commands: Mapping[str, Action],
        names_by_key: Mapping[str, str],
        parts: ScreenParts,
        open_path: Callable[[str], object],
    ) -> None:
        """`commands` are functions by name, `names_by_key` their names by key; `open_path` asks for one."""
        self.commands, self._names = commands, names_by_key
        self._workspace, self._answers, self._input = parts.workspace, parts.answers, parts.input_line
        self._open_path = open_path
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

    def take_waiting(self) -> list[KeyPress]:
        """Return the queued keys, which are no longer ours: the palette has opened before them."""
        waiting = [press for press in self._waiting if not press.is_paste]
        self._waiting.clear()
        return waiting

    def skip_stale_keys(self) -> None:
        """Drop keys that have waited for too long before a key that leads elsewhere."""
        if not self._waiting or time.monotonic() < self._waiting[0].time_s + STALE_KEY_S:
            return
        for index, name in enumerate(self._names.get(press.key) for press in self._waiting):
            if name in OPENING_THE_LINE:
                return  # what follows may be text
            if name in LEADING_ELSEWHERE and not self._compares_rows(name):
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

    def _compares_rows(self, name: str | None) -> bool:
        """Whether a command compares the rows that keys before it have marked."""
        return name == "diff" and self._workspace.session.view in PAIRED_ROWS

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
        needs_answer = name in NEEDING_AN_ANSWER or self._compares_rows(name)
        return workspace.is_showing_view and self._answers.is_stale and needs_answer

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
            self._open_path(text.strip())


class Controllers:
    """The objects that carry out commands."""

    def __init__(self, parts: ScreenParts) -> None:
        self._workspace = parts.workspace
        self.navigation = Navigation(parts)
        self.cursor = CursorController(parts)
        self.rows = RowActions(parts)
        self.runs = RunActions(parts, self.rows)
        self.columns = ColumnPicker(parts)
        self.filter = FilterController(parts)
        self.export = ViewExport(parts)
        self.engine = EngineControl(parts)
        self.updates = RunUpdates(parts)

    def build_commands(self) -> dict[str, Action]:
        """Return the function of each command of the key table but those that are Textual's."""
        change, open_tab = self.navigation.apply_command, self.navigation.open_tab
        on_session = {name: partial(change, command) for name, command in COMMANDS.items()}
        tabs = {f"tab_{number}": partial(open_tab, number) for number in range(1, DIGITS + 1)}
        return {**on_session, **tabs, **self._build_moves(), **self._build_others()}

    def _build_moves(self) -> dict[str, Action]:
        cursor, navigation = self.cursor, self.navigation
        return {
            "move_down": partial(cursor.move, 1),
            "move_up": partial(cursor.move, -1),
            "move_right": partial(self._move_sideways, 1),
            "move_left": partial(self._move_sideways, -1),
            "page_down": partial(cursor.move_by_pages, 1),
            "page_up": partial(cursor.move_by_pages, -1),
            "half_down": partial(cursor.move_by_pages, 0.5),
            "half_up": partial(cursor.move_by_pages, -0.5),
            "first": partial(cursor.move_far, -1),
            "last": partial(cursor.move_far, 1),
            "next_match": partial(self._move_to_match, 1),
            "previous_match": partial(self._move_to_match, -1),
            "launch": cursor.follow_launch,
            "next_view": partial(navigation.open_neighbour, 1),
            "previous_view": partial(navigation.open_neighbour, -1),
            "back": navigation.go_back,
            "place_before": partial(navigation.go_to_place, -1),
            "place_after": partial(navigation.go_to_place, 1),
        }

    def _build_others(self) -> dict[str, Action]:
        rows, runs, engine = self.rows, self.runs, self.engine
        return {
            "quit": self.navigation.quit,
            "help": self.navigation.toggle_help,
            "enter": self._enter_row,
            "filter": self._open_filter,
            "notes": self.navigation.toggle_notes,
            "mark": rows.toggle_mark,
            "note": rows.open_note,
            "history": rows.open_history,
            "link": rows.toggle_link,
            "runs": runs.toggle_list,
            "diff": runs.open_diff,
            "pin": runs.toggle_baseline,
            "columns": self.columns.toggle_list,
            "copy_row": partial(self.export.copy, format_row),
            "copy_markdown": partial(self.export.copy, format_row_markdown),
            "export": self.export.open_prompt,
            "now": self.navigation.open_now,
            "pause": self.updates.toggle_pause,
            "mode": engine.switch_mode,
            "prompt": engine.open_prompt,
            "restart": engine.restart,
            "engine": engine.open_arguments,
            "output": engine.toggle_output,
        }

    def _enter_row(self) -> None:
        """Choose the row under the cursor, which does what the page is for."""
        page = self._workspace.page
        if isinstance(page, RunList):
            self.runs.choose_run(page)
        elif isinstance(page, ColumnList):
            self.columns.toggle_column(page)
        elif isinstance(page, RowHistory):
            self.runs.open_source(page)
        elif isinstance(page, HelpPage):
            self.navigation.show_page(GuideList())
        elif isinstance(page, GuideList):
            self.navigation.open_guide(page)
        else:
            self.runs.open_row()

    def _move_sideways(self, by: int) -> None:
        """Move by columns or cells; in the list of columns, move the column under the cursor."""
        page = self._workspace.page
        if isinstance(page, ColumnList):
            self.columns.move_column(page, by)
        else:
            self.cursor.move(0, by)

    def _move_to_match(self, direction: int) -> None:
        """Move to the next or previous row that matches the last filter; on a timeline, to a slice."""
        if self._workspace.is_showing_timeline:
            self.cursor.move_to_next_slice(direction)
        else:
            self.filter.move_to_match(direction)

    def _open_filter(self) -> None:
        """Open the filter; in the list of runs, ask for the path of another one."""
        if self._workspace.is_showing_view:
            self.filter.open_prompt()
        elif isinstance(self._workspace.page, RunList):
            self.runs.open_prompt()
