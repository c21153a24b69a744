"""AMD's rocprof: `csv_tables` of every version, and `sdk_json`, the JSON of rocprofv3."""
