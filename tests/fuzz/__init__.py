"""A fuzzer that knows the formats: damaged inputs through loaders, views, reports and exports.

`python -m tests.fuzz --seconds 60 --seed 1` runs it; `--case 1:4711` repeats one case in the same process.
A case gives a result or one of our own sentences; everything else is a fault.
"""
