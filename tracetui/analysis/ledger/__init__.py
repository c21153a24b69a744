"""The account of a step's time, and predictions made with it.

step_ledger: split a step into ideal time, excess by op and layer, and gaps by cause
simulation: replay host and device with changed kernel durations
what_if: predict the step time if an op were faster or slower
"""
