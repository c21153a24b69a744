"""AMD's rocprof and rocprofv3: CSV tables, JSON, and the rocpd database.

csv_tables: loader of one CSV: traces, statistics or counters
rocprof_job: bundler of the CSVs of one rocprofv3 job
sdk_json: loader of rocprofv3's JSON
rocpd: loader of rocpd databases
"""
