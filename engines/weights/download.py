"""Download a model from the Hugging Face hub into its cache, for `--download` only."""

import os
from typing import Any, Final

from capture.errors import CaptureError, EngineError, UsageError
from engines.weights import hub_cache
from engines.weights.model_names import ResolvedModel, parse_repository, resolve_model

CHECKPOINT_FILES: Final = ["config.json", "tokenizer.json", "*.safetensors", "model.safetensors.index.json"]
INSTALL_COMMAND: Final = "pip install 'tracetui[live]'"


def is_local(model: str) -> bool:
    """Return whether the weights of a model are on this machine."""
    try:
        return resolve_model(model).path is not None
    except UsageError:
        return False


def resolve_repository(model: str) -> tuple[str, str]:
    """Return hub name and tag of a model to download. Raise UsageError if it has none."""
    name, tag = parse_repository(model)
    if name:
        return name, tag
    preset = resolve_model(model).preset
    if preset is None or not preset.hub:
        raise UsageError(f"{model} is not a name on the hub", todo="--download takes OWNER/NAME")
    return preset.hub[0], ""


def fetch_model(model: str) -> ResolvedModel:
    """Download a model and return its path. Raise EngineError if the hub does not deliver it."""
    name, tag = resolve_repository(model)
    patterns = [f"*{tag}*.gguf", f"*{tag.upper()}*.gguf"] if tag else CHECKPOINT_FILES
    folder, _ = hub_cache.find_hub_folder()
    try:
        _load_client().snapshot_download(name, allow_patterns=patterns, cache_dir=folder)
    except CaptureError:
        raise
    except Exception as e:  # requests', the system's and the hub's own
        lines = str(e).strip().splitlines() or [""]
        why = f"{type(e).__name__}: {lines[0]}"
        raise EngineError(f"{name} could not be downloaded", why=why[:300]) from None
    if is_local(model):
        return resolve_model(model)
    todo = "" if tag else f"name one of its GGUF files: {name}:Q4_K_M"
    raise EngineError(f"{name} has no {' or '.join(patterns[:3])}", todo=todo)


def _load_client() -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import huggingface_hub
    except ImportError:
        raise EngineError("--download needs the package huggingface_hub", todo=INSTALL_COMMAND) from None
    return huggingface_hub
