"""Nsight Systems: SQLite exports, and what 'nsys stats' prints.

`sqlite` and `stats` are the loaders. For exports: `database` opens a file from outside safely, `tables` names
what is read, `scopes` nests NVTX ranges, `autograd` finds whose work a backward pass is, `rows` makes events.
For prints: `reports` finds the sections of the
text, `stats_rows` makes events of their rows.
"""
