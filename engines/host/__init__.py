"""The machine around the engine: commands, timing, roofs, text.

heartbeat: Flush the recording, and write a sign of life.
engine_commands: Commands on stdin and signals, run between steps; what the parts of an engine share.
op_runners: Run the ops of a step on the CPU or on an accelerator.
idle_work: Throttled work between two reports.
measure_roofs: Measure peak bandwidth, peak FLOP/s and launch time.
tokenizer_text: Prompts to token ids, and token ids to text.
"""
