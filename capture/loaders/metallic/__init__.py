"""metallic: its JSON-lines recording, and the report that its analyzer prints.

`recording` and `report` are the loaders. `fast_scan` or `patient_scan` turns a recording into raw rows,
`names` says what op names mean, `events` makes the rows with a duration, `tables` all others.
"""
