"""CUDA graphs: attribute the kernels of a replay to what launched them while the graph was captured.

A replay launches many kernels by one host call, so its trace shows neither operators nor modules. The trace
of the capture shows both, and no kernel that ran. In the order of their use:

capture_files: find the files next to a trace that say more of its kernels
capture_reader: read a capture trace: operator, operands, modules and scopes of each launch
capture_match: find the captured graph of a replay, and the launch of each of its kernels
launch_alignment: align the launches of a graph to the kernels of a replay (A* search)
replay_attribution: fill operator, operands and scopes of replayed kernels
"""
