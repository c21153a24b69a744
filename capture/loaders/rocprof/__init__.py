"""AMD's rocprof: CSV tables of every version, and the JSON that rocprofv3 writes."""
