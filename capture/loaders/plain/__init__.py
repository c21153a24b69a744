"""Any table with a name and a duration.

`table` is the loader; `columns` guesses what the headings mean, `rows` splits the lines.
"""
