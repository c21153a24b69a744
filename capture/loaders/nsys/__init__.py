"""Nsight Systems: exports of a report, the report itself, and the text that `nsys stats` prints.

sqlite_export: loader of SQLite exports; builds the run of any export
parquet_export: bundler of exports that are a folder of Parquet files
rep_file: loader of `.nsys-rep` files, through the user's own nsys
export_tables: the tables and columns read from an export
export_events: convert those tables to events: device work, API calls, NVTX
nvtx_scopes: nest NVTX ranges; find the innermost open range at any time
backward_owner: attribute backward ops to forward modules by sequence number
stats: loader of the text of `nsys stats`
printed_reports: parse the tables in that text
stats_events: convert each of its reports to events
"""
