"""Compute tables from a Run: functions from frame to frame, without drawing, files or Textual.

frames: how tables are computed: caches, row selection, integer codes, time axis, statistics
time: accounting of time: steps, device time, gaps and their causes, exclusive time
ledger: the account of a step's time, and what a changed op would save
merged: results of single files that merge into the answer over many files

One module per table, mostly named after the view that shows it:

calls: callers and callees of one scope
collective_times: each collective split over ranks into arrival and transfer
classification_reasons: why a kernel has its op and category
contradictions: figures that cannot be, and what they contradict
detail: launches, histogram, steps and layers of one entered row
energy: joules per step, phase, token and row, and what tokens cost
growth: time per token of each op against context length, and its law
kernels: kernel statistics per group, with trends over the steps
key_facts: headline facts of a run, and the views worth opening next
layers: time per layer and op, and layers unlike the others
ranks: work and waits of each rank, stragglers, skew per step
recent_stats: the last seconds of a live run compared with all of it
recording_advice: what to record next time to get missing data
roofline: rates of work, their share of the roof, and what bounds them
sections: the report of metallic, recomputed from a recording
shapes: operand shapes with counts and rates
slices: find and move between single slices of a timeline
slow_steps: steps against their like, and in what a slow one differs
token_waits: waits for the tokens of requests to a server, and why one came late
summary: metadata, steps, devices and where the time went
timeline: lanes, slices and gaps of a time window
training: phases, kernels, matrix products and memory of a training run
tree: the scope tree with inclusive and self time
vitals: newest state of a run, its machine and a watched server
"""
