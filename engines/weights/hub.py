"""Find models in a Hugging Face cache, and what of each is there. Never the network, and no torch."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from capture.errors import EngineError
from capture.native.emit import Emitter
from engines.models.catalogue import PRESETS, read_config
from engines.models.spec import Spec, tensors
from engines.weights.headers import check, read_headers, shard_files

TOKENIZER: Final = "tokenizer.json"


def write_survey(emitter: Emitter, id: str) -> None:
    """Write into the run's meta what lies here of every preset."""
    folder, why = hub()
    models = [entry for spec in PRESETS.values() for entry in survey(spec)]
    about = {"folder": str(folder), "why": why, "there": folder.is_dir(), "found": models}
    emitter.run("weights", {"weights_found": about}, id=id)


def hub() -> tuple[Path, str]:
    """Return the folder of the cache, and what decided on it."""
    if stated := os.environ.get("HF_HUB_CACHE"):
        return Path(stated).expanduser(), "HF_HUB_CACHE"
    if stated := os.environ.get("HF_HOME"):
        return Path(stated).expanduser() / "hub", "HF_HOME"
    return Path.home() / ".cache" / "huggingface" / "hub", "neither HF_HUB_CACHE nor HF_HOME is set"


def cached_folders(spec: Spec) -> list[Path]:
    """Return the folders in which the cache would keep this model."""
    here, _ = hub()
    return [folder for name in spec.hub for folder in _snapshots(here / f"models--{name.replace('/', '--')}")]


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


def survey(spec: Spec) -> list[dict[str, Any]]:
    """Return what the cache holds of a model, best first: the folder that would be read, or why it is not."""
    folders = sorted(cached_folders(spec), key=lambda folder: not usable(folder))
    return [{"model": spec.name, **_inspect(folder, spec)} for folder in folders] or [
        {"model": spec.name, "names": list(spec.hub)}
    ]


def _inspect(folder: Path, spec: Spec) -> dict[str, Any]:
    about: dict[str, Any] = {
        "folder": str(folder),
        "config": (folder / "config.json").is_file(),
        "tokenizer": (folder / TOKENIZER).is_file(),
    }
    try:
        shards = shard_files(folder)
        about |= {"shards": len(shards), "bytes": sum(_size(path) for path in shards)}
        check(read_headers(folder), tensors(read_spec(folder, spec.name)), folder)
    except EngineError as e:
        about["refused"] = str(e)
    return about


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
