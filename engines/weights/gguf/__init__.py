"""GGUF files, the models of llama.cpp and Ollama, read without their libraries.

gguf_header: Metadata and tensor locations of a file.
gguf_model: A file as a model: its spec and its tensors.
gguf_source: A file as a weight source.
block_unpacking: Quantised blocks as numbers.
"""
