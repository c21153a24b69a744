"""Weights: where they come from, how they are stored, and how stored matrices multiply.

model_names: Resolve the model names that users type to paths on this machine, and list all models.
hub_cache: Models in a Hugging Face cache.
download: Download a model from the Hugging Face hub.
weight_sources: Weights from a folder, a GGUF file, or random numbers.
safetensors_headers: Read and check the headers of safetensors files.
checkpoint: A folder of safetensors as a weight source.
gguf: GGUF files as a weight source.
weight_loader: Load tensors as matrices, layer by layer.
matrix_storage: Plain matrices and storages, and the base classes of all of them.
low_bit: Quantisation formats of 4 and 8 bits: pack and unpack.
quantised_storage: A quantisation format as the storage of a model, and products of packed matrices.
bf12_storage: bf16 weights stored losslessly in 12 bits.
fastest_storage: Measure which storage is fastest on this CPU.
"""
