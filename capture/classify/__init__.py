"""Infer layer, op, category and phase from names, by rules kept as data; and layers from kernel order.

Kernel names:

kernel_rules: classify a kernel name by the rules of kernel_rules.tsv and the user's own
kernel_name_parts: split a kernel name into base name, template arguments and wrapped functor
demangle: demangle C++ names as far as the names of kernels need it
short_names: shorten kernel names so that they fit a column and stay unique within a run

Names of any row:

name_rules: layer, role and phase that a name implies; module paths, by the rules of module_rules.tsv
step_annotations: parse the step annotations of serving engines: phase, requests, tokens, attention sums
operator_call: an operator call as a profiler records it, and the sizes of its types
experts_work: estimate the work of mixtures of experts
operator_work: estimate FLOPs and bytes of an operator call from the shapes and types of its operands
columns_from_names: fill missing layer, op, category and phase of events from their names and paths

Kernel order, if names tell no layer:

layer_inference: infer layers and roles of a kernel sequence, pass by pass, with the evidence
pass_template: infer layers, kinds of layers and roles of one pass
layer_boundaries: find where passes and layers begin
layer_roles: assign roles to the units of a layer by their position
kernel_symbols: encode each kernel as a one-letter symbol
"""
