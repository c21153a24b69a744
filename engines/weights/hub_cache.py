"""Find models in a Hugging Face cache. No network and no torch."""

import os
from dataclasses import replace
from pathlib import Path

from capture.errors import EngineError
from engines.models.catalogue import PRESETS, read_config
from engines.models.spec import Spec


def find_hub_folder() -> tuple[Path, str]:
    """Return the cache folder, and the setting that it comes from."""
    if folder := os.environ.get("HF_HUB_CACHE"):
        return Path(folder).expanduser(), "HF_HUB_CACHE"
    if folder := os.environ.get("HF_HOME"):
        return Path(folder).expanduser() / "hub", "HF_HOME"
    return Path.home() / ".cache" / "huggingface" / "hub", "default: neither HF_HUB_CACHE nor HF_HOME is set"


def list_cached_folders(spec: Spec) -> list[Path]:
    """List the cache folders of a known model, usable or not."""
    return [folder for name in spec.hub for folder in list_snapshots(name)]


def list_snapshots(name: str) -> list[Path]:
    """List the snapshots of a model by its hub name, in any case: the one that `main` points to first."""
    folders = {other.lower(): folder for other, folder in map_cached_models().items()}
    model = folders.get(name.lower())
    if model is None:
        return []
    try:
        main = (model / "refs" / "main").read_text()[:100].strip()
    except (OSError, ValueError):
        main = ""
    snapshots = sorted(p for p in (model / "snapshots").glob("*") if p.is_dir())
    return sorted(snapshots, key=lambda p: p.name != main)


def map_cached_models() -> dict[str, Path]:
    """Map the hub names of cached models to their folders."""
    try:
        folders = sorted(find_hub_folder()[0].glob("models--*--*"))
    except OSError:
        return {}
    return {path.name.removeprefix("models--").replace("--", "/", 1): path for path in folders}


def is_usable(folder: Path) -> bool:
    """Return whether weights can be read from a snapshot: it has a config and safetensors."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def read_spec(folder: Path, name: str) -> Spec:
    """Read the config.json of a folder; end tokens of a preset are added, because some configs lack them."""
    config = folder / "config.json"
    if not config.is_file():
        raise EngineError("has no config.json", where=str(folder))
    spec = read_config(config, name)
    preset = PRESETS.get(name.lower())
    return replace(spec, eos=tuple({*spec.eos, *preset.eos})) if preset else spec
