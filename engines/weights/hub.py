"""Find models in a Hugging Face cache. Never the network, and no torch."""

import os
from dataclasses import replace
from pathlib import Path

from capture.errors import EngineError
from engines.models.catalogue import PRESETS, read_config
from engines.models.spec import Spec


def hub() -> tuple[Path, str]:
    """Return the folder of the cache, and what decided on it."""
    if stated := os.environ.get("HF_HUB_CACHE"):
        return Path(stated).expanduser(), "HF_HUB_CACHE"
    if stated := os.environ.get("HF_HOME"):
        return Path(stated).expanduser() / "hub", "HF_HOME"
    return Path.home() / ".cache" / "huggingface" / "hub", "neither HF_HUB_CACHE nor HF_HOME is set"


def cached_folders(spec: Spec) -> list[Path]:
    """Return the folders in which the cache would keep this model."""
    return [folder for name in spec.hub for folder in snapshots_of(name)]


def snapshots_of(name: str) -> list[Path]:
    """Return the snapshots of a model by its name on the hub, in whatever case it is typed."""
    kept = {other.lower(): folder for other, folder in _cached().items()}
    folder = kept.get(name.lower())
    return _snapshots(folder) if folder else []


def cached_names() -> list[str]:
    """Return the names of all models in the cache, as the hub has them."""
    return list(_cached())


def _cached() -> dict[str, Path]:
    """Return the folders of the cache by the names of their models."""
    try:
        there = sorted(hub()[0].glob("models--*--*"))
    except OSError:
        return {}
    return {path.name.removeprefix("models--").replace("--", "/", 1): path for path in there}


def _snapshots(model: Path) -> list[Path]:
    """Return the snapshots of a model: the one that `main` points to first, then the others."""
    try:
        main = (model / "refs" / "main").read_text()[:100].strip()
    except (OSError, ValueError):
        main = ""
    there = sorted(p for p in (model / "snapshots").glob("*") if p.is_dir())
    return sorted(there, key=lambda p: p.name != main)


def usable(folder: Path) -> bool:
    """Return whether a folder of the cache is one to read weights from."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def read_spec(folder: Path, name: str) -> Spec:
    """Return the model of a folder's config.json; a preset only adds end tokens that a config lacks."""
    config = folder / "config.json"
    if not config.is_file():
        raise EngineError("has no config.json", where=str(folder))
    spec = read_config(config, name)
    preset = PRESETS.get(name.lower())
    return replace(spec, eos=tuple({*spec.eos, *preset.eos})) if preset else spec
