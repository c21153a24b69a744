"""The names that people type for a model, and where each lies on this machine. No network, and no torch.

A path; a known model; a name of the Hugging Face hub, looked for in its cache; a name of Ollama, looked for
among its manifests. `NAME:TAG` chooses one of several files.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from engines.models.catalogue import PRESETS
from engines.models.spec import Spec
from engines.weights import hub, ollama
from engines.weights.gguf.model import SUFFIX

PREFIXES: Final = ("https://huggingface.co/", "huggingface.co/", "hf.co/")


@dataclass(frozen=True)
class Found:
    """What a name means here: a folder or a file, or a known model whose weights are not here."""

    name: str
    path: Path | None = None
    preset: Spec | None = None


def find(model: str) -> Found:
    """Return what a name means. Raise UsageError, with where was looked, for one that means nothing here."""
    for look in (_path, _known, _in_cache, _in_ollama, _known_repository):
        if found := look(model):
            return found
    raise _unknown(model)


def repository(model: str) -> tuple[str, str]:
    """Return a name of the hub and the tag behind it; both empty where it is no such name."""
    for prefix in PREFIXES:
        model = model.removeprefix(prefix)
    name, _, tag = model.partition(":")
    owner, slash, rest = name.partition("/")
    plain = all(part and not part.startswith(".") and "\\" not in part for part in (owner, rest))
    return (name, tag) if slash and plain and "/" not in rest else ("", "")


def listed() -> Iterator[str]:
    """Yield every name under which something lies here, and those of the known models."""
    yield from PRESETS
    yield from hub.cached_names()
    yield from ollama.names()


def _path(model: str) -> Found | None:
    path = Path(model).expanduser()
    try:
        if path.is_file():
            return Found(path.stem, path)
        return Found(path.name, _within(path, "", str(path))) if path.is_dir() else None
    except (OSError, ValueError):
        return None


def _known(model: str) -> Found | None:
    spec = PRESETS.get(model.lower())
    if spec is None:
        return None
    snapshot = next(filter(hub.usable, hub.cached_folders(spec)), None)
    return Found(spec.name, snapshot, spec)


def _in_cache(model: str) -> Found | None:
    name, tag = repository(model)
    folders = hub.snapshots_of(name) if name else []
    for folder in folders:
        if hub.usable(folder) or _files(folder):
            return Found(name.rpartition("/")[2], _within(folder, tag, name))
    return None


def _in_ollama(model: str) -> Found | None:
    blob = ollama.blob_of(model)
    return Found(model, blob) if blob else None


def _known_repository(model: str) -> Found | None:
    """Return the known model that is published under a name of the hub; its weights are not here."""
    name, _ = repository(model)
    known = (spec for spec in PRESETS.values() if name.lower() in (own.lower() for own in spec.hub))
    spec = next(known, None)
    return Found(spec.name, None, spec) if spec else None


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{SUFFIX}") if not path.name.startswith("mmproj"))


def _within(folder: Path, tag: str, name: str) -> Path:
    """Return the folder itself where it holds a checkpoint, else the one GGUF in it that the tag allows."""
    if not tag and (hub.usable(folder) or not _files(folder)):
        return folder
    fitting = [path for path in _files(folder) if tag.lower() in path.name.lower()]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(path.name for path in fitting or _files(folder))
    what = f"holds {len(fitting)} GGUF files" if fitting else f"holds no GGUF file with {tag} in its name"
    raise UsageError(f"{name} {what}", why=names[:300], todo=f"name one: {name}:Q4_K_M, or its path")


def _unknown(model: str) -> UsageError:
    typed = {name.lower(): name for name in listed()}
    near = [typed[name] for name in difflib.get_close_matches(model.lower(), typed, n=2, cutoff=0.5)]
    owner = repository(model)[0]
    places = f"looked for a path, in {hub.hub()[0]} and in {ollama.folders()[0]}"
    todo = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(PRESETS)}"
    if owner:
        todo += "; --download fetches it from huggingface.co"
    return UsageError(f"no model is called {model}", why=places, todo=todo)
