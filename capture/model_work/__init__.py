"""Work of kernels without operand shapes, from the config.json of their model.

model_config: find and read a config.json
role_work: FLOPs and bytes of each role of a layer
fill_work: fill the work that the kernels of a run lack
"""
