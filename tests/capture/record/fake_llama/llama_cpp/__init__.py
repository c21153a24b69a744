"""The surface of llama-cpp-python that a decode loop needs, over the C beside it."""

from .llama_cpp import *  # noqa: F403

__version__ = "0.0.fake"
