"""What keys do: one controller for each task, given the objects that it needs.

- base: what controllers share
- column_picker: choose and order the columns of a table
- cursor_moves: move the cursor of tables, drawings and timelines
- engine_control: restart the engine, change its options, send it prompts, show its output
- export_view: write the view to a file, copy a row to the clipboard
- filter_prompt: filter rows while the user types, move between matches
- input_line: one line of text that takes all keys while it is open
- navigation: change page and tab; sort; go back
- row_actions: details, marks, notes and links of rows
- run_actions: choose, compare, open and pin runs
- run_updates: put newly read and newer runs into the session
"""
