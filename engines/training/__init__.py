"""Training the CS336 models: what a step is made of, how it is run, and whose work the backward pass is."""
