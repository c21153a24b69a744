"""Training the CS336 models, step by step.

training_options: Options of training, and the model size they request.
model_sizes: The CS336 models, and the memory that a step takes.
training_plan: Ops of a training step.
trainer: The model, its loss and its optimizer as single ops.
training_loop: Build a trainer from arguments, run its steps and record them.
phase_memory: Memory of each phase of a step.
"""
