"""What lies on this machine of every model, known or not. Never the network, and no torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from capture.errors import CaptureError, EngineError
from capture.native.emit import Emitter
from engines.models.catalogue import PRESETS
from engines.models.spec import Spec
from engines.weights import hub, ollama
from engines.weights.gguf.model import read_model
from engines.weights.headers import check, read_headers, shard_files
from engines.weights.hub import cached_folders, read_spec, usable
from engines.weights.names import find
from engines.weights.stored import stored_tensors

TOKENIZER: Final = "tokenizer.json"


def write_survey(emitter: Emitter, id: str) -> None:
    """Write into the run's meta what lies here of every preset, and which other models lie here."""
    folder, why = hub.hub()
    models = [entry for spec in PRESETS.values() for entry in survey(spec)]
    more = [inspect_other(name) for name in others()]
    about = {"folder": str(folder), "why": why, "there": folder.is_dir(), "found": models, "others": more}
    places = [{"folder": str(place), "there": place.is_dir()} for place in ollama.folders()]
    emitter.run("weights", {"weights_found": {**about, "ollama": places}}, id=id)


def others() -> Iterator[str]:
    """Yield the names of what lies here beside the known models."""
    known = {name.lower() for spec in PRESETS.values() for name in spec.hub}
    yield from (name for name in hub.cached_names() if name.lower() not in known)
    yield from ollama.names()


def inspect_other(name: str) -> dict[str, Any]:
    """Return where a model lies that no preset knows, or why it would be refused."""
    try:
        path = find(name).path
        if path is None:
            raise EngineError("its weights are not here")
        if path.is_file():
            model = read_model(path, name)
            return {"model": name, "file": str(path), "bytes": _size(path), "stored_as": model.stored_as}
        return {"model": name, **_inspect(path, read_spec(path, name))}
    except CaptureError as e:
        return {"model": name, "refused": str(e)}


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
        check(read_headers(folder), stored_tensors(read_spec(folder, spec.name)), folder)
    except EngineError as e:
        about["refused"] = str(e)
    return about


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
