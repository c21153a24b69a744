"""The screen, and the only code that imports Textual.

A key changes the session by a pure function (session_commands); the updater makes the picture of its question
in a background thread (answer_updates, question); the renderer draws it on the main screen. Messages, timers,
themes, the palette and the driver are Textual's; where keys, footer and help are not, a docstring says why.

- answer_updates: keep the displayed answer up to date, computed in background threads, newest first
- app: the Textual app: builds the parts, passes events on, opens the palette
- controllers: what keys do, one class for each task
- key_remap: replace keys by the user's
- key_table: every command with its keys and help; footer, palette and help are made from it
- keyboard: run keys in the order typed, as commands or as text
- main_screen: the one screen: header and tabs, a table or a drawing, status and keys
- messages: the messages that widgets and background threads post to the app
- pages: what fills the screen besides views, and the bands around it: lines and tables
- picture: write a picture of the screen as SVG or PNG
- question: a question to a view, and the picture of its answer
- renderer: draw the workspace on the main screen
- run_info: properties of a run that the screen needs at every key
- saved_remarks: save marks and notes, found by the content of the recording
- screen_config: the config file: theme, characters, keys, columns
- screen_options: how a screen starts
- session: the state that keys change: runs, view, looks, remarks, the way back
- session_commands: what keys do to a session, as pure functions
- sheet: column widths and cell texts of a table, without a widget
- terminal: the driver, colours, and minimal output to the terminal
- tour: the text of the guided tour, step by step
- widgets: panes of styled lines, and a table of millions of rows
- workers: feeds of runs: read and follow files, restore old steps
- workspace: the state that controllers share and the renderer draws
"""

from typing import Final

THEMES: Final = ("dark", "light", "ansi", "colour-blind")  # names that the user can choose
