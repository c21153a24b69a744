"""GGUF files, as llama.cpp and Ollama keep models: read here, never run by anybody's library."""
