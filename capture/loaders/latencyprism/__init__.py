"""LatencyPrism: the comparison report of its DeepDive, and its processed CSV files.

comparison_report: loader of a comparison, as Markdown or CSV
processed_csv: loader of the CSV files per cycle and of raw counters
metric_names: functions, metrics and their real units; plain CSV lines
"""
