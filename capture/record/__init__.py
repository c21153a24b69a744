"""How a process produces events. Only here may `capture` import torch, pynvml and psutil.

Most modules run inside the recorded program, on Python 3.8 and later: they use relative imports, because the
package is loaded by path under a private name, and they never let an error of ours reach the program.

start and end of a recording:
  spans: Recorder, which times the parts of a loop of your own
  bootstrap: wait for the program's import of torch or llama_cpp; started by site/sitecustomize.py
  injected: text executed inside a running process, which attaches
  attach_running: record a running process until detached
  watchdog: process that ends a program whose starter is gone
  process_notes: notes and shared step numbers from the program to its recorder
  process_recording: the recording of one process
  fault_guard: stop recording after an error of ours
  patches: attribute patches that can be undone
  torchrun: rank of this process in a launch

PyTorch programs:
  patch_torch: patch torch so that calls are recorded
  program_recorder: record a program, thread by thread
  thread_recorder: record one thread: calls as rows, grouped into steps
  process_state: state shared by the threads
  call_stack: open calls of a thread, and the steps that they form
  call_phases: prefill, decode or forward, from the inputs of a call
  served_batch: sequences, tokens and context of a flat batch, from the engine that serves it
  step_module: the module whose calls are the steps
  op_ids: ids of ops, written once in a plan line

kernels:
  profiler_windows: short windows of torch's profiler, and their leaf work
  window_gate: when a window may open
  captured_graphs: which module launched each node of a CUDA graph
  launch_order: assign the kernels of a replay to modules

other:
  llama_cpp: record llama-cpp-python
  llama_nodes: layer, role and category of its graph nodes
  counters/: CPU, memory and GPU counters, sampled by other processes
"""
