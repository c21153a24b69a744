"""Fetch a model from the Hugging Face hub into its cache: only where `--download` is said."""

import os
from typing import Any, Final

from capture.errors import CaptureError, EngineError, UsageError
from engines.weights import hub
from engines.weights.names import Found, find, repository

CHECKPOINT: Final = ("config.json", "tokenizer.json", "*.safetensors", "model.safetensors.index.json")
INSTALL: Final = "pip install 'tracetui[live]'"


def lies_here(model: str) -> bool:
    """Return whether the weights of a model are on this machine."""
    try:
        return find(model).path is not None
    except UsageError:
        return False


def wanted(model: str) -> tuple[str, str]:
    """Return the name on the hub and the tag of what would be fetched. Raise UsageError if it has none."""
    name, tag = repository(model)
    if name:
        return name, tag
    known = find(model).preset
    if known is None or not known.hub:
        raise UsageError(f"{model} is no name of the hub", todo="--download takes OWNER/NAME")
    return known.hub[0], ""


def fetch(model: str) -> Found:
    """Fetch a model and return where it lies. Raise EngineError where the hub does not give it."""
    name, tag = wanted(model)
    patterns = [f"*{tag}*.gguf", f"*{tag.upper()}*.gguf"] if tag else list(CHECKPOINT)
    try:
        _client().snapshot_download(name, allow_patterns=patterns, cache_dir=hub.hub()[0])
    except CaptureError:
        raise
    except Exception as e:  # requests', the system's and the hub's own
        lines = str(e).strip().splitlines() or [""]
        why = f"{type(e).__name__}: {lines[0]}"
        raise EngineError(f"{name} could not be fetched", why=why[:300]) from None
    if lies_here(model):
        return find(model)
    todo = "" if tag else f"name one of its GGUF files: {name}:Q4_K_M"
    raise EngineError(f"{name} has no {' or '.join(patterns[:3])}", todo=todo)


def _client() -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import huggingface_hub
    except ImportError:
        raise EngineError("--download needs the package huggingface_hub", todo=INSTALL) from None
    return huggingface_hub
