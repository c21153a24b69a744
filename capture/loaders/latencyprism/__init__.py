"""LatencyPrism's comparison report, and its processed CSV files.

`comparison` and `processed` are the loaders; `report_text` reads the tables of a report, `vocabulary` holds
what all files share: functions, metrics and their units.
"""
