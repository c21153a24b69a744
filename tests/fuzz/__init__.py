"""A fuzzer that knows the formats: damaged inputs through loaders, views, reports and exports.

`python -m tests.fuzz --seconds 60 --seed 1` runs it; `--input 1:4711` repeats one input in the same process.
An input is read once and then asked for many answers; each of them in one form is a case. A case gives a
result or one of our own sentences; everything else is a fault.
"""
