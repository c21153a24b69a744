"""Models on this machine: resolve the names that users type to paths, and list all. No network and no torch.

A name is a path, a known model, a name of the Hugging Face hub (searched in its cache), or a name of Ollama
(searched in its manifests, one per name). `NAME:TAG` selects one of several files.
"""

import difflib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture.errors import CaptureError, EngineError, UsageError
from engines.models.catalogue import PRESETS, describe_broken_families, list_stored_tensors
from engines.models.spec import Spec
from engines.weights import hub_cache
from engines.weights.gguf.gguf_model import SUFFIX, read_gguf_model
from engines.weights.safetensors_headers import check_tensors, list_shard_files, read_headers

HUB_PREFIXES: Final = ("https://huggingface.co/", "huggingface.co/", "hf.co/")
MAX_MANIFEST_BYTES: Final = 1 << 20  # bytes of a manifest
WEIGHTS_MEDIA_TYPE: Final = "application/vnd.ollama.image.model"
REGISTRY, LIBRARY = "registry.ollama.ai", "library"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
NAME_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SERVICE_FOLDER: Final = Path("/usr/share/ollama/.ollama/models")  # where the service on Linux keeps them


class ResolvedModel(NamedTuple):
    """Meaning of a name on this machine: a folder or file, or a known model without local weights."""

    name: str
    path: Path | None = None
    preset: Spec | None = None


def resolve_model(model: str) -> ResolvedModel:
    """Resolve a name. Raise UsageError, with the places searched, for an unknown one."""
    local = (_resolve_path, _resolve_preset, _resolve_in_cache, _resolve_in_ollama)
    for resolve in (*local, _resolve_known_repository):
        if resolved := resolve(model):
            return resolved
    raise _build_unknown_error(model)


def parse_repository(model: str) -> tuple[str, str]:
    """Split a hub name from the tag behind it; both are empty if it is not a hub name."""
    for prefix in HUB_PREFIXES:
        model = model.removeprefix(prefix)
    name, _, tag = model.partition(":")
    owner, slash, repository = name.partition("/")
    is_safe = all(part and not part.startswith(".") and "\\" not in part for part in (owner, repository))
    return (name, tag) if slash and is_safe and "/" not in repository else ("", "")


def _resolve_path(model: str) -> ResolvedModel | None:
    path = Path(model).expanduser()
    try:
        if path.is_file():
            return ResolvedModel(path.stem, path)
        return ResolvedModel(path.name, _choose_in_folder(path, "", str(path))) if path.is_dir() else None
    except (OSError, ValueError):
        return None


def _resolve_preset(model: str) -> ResolvedModel | None:
    spec = PRESETS.get(model.lower())
    if spec is None:
        return None
    snapshot = next(filter(hub_cache.is_usable, hub_cache.list_cached_folders(spec)), None)
    return ResolvedModel(spec.name, snapshot, spec)


def _resolve_in_cache(model: str) -> ResolvedModel | None:
    name, tag = parse_repository(model)
    folders = hub_cache.list_snapshots(name) if name else []
    for folder in folders:
        if hub_cache.is_usable(folder) or _list_gguf_files(folder):
            return ResolvedModel(name.rpartition("/")[2], _choose_in_folder(folder, tag, name))
    return None


def _resolve_in_ollama(model: str) -> ResolvedModel | None:
    blob = find_blob(model)
    return ResolvedModel(model, blob) if blob else None


def _resolve_known_repository(model: str) -> ResolvedModel | None:
    """Return the known model published under a hub name, without weights."""
    name, _ = parse_repository(model)
    presets = {published.lower(): spec for spec in PRESETS.values() for published in spec.hub}
    spec = presets.get(name.lower())
    return ResolvedModel(spec.name, None, spec) if spec else None


def _list_gguf_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{SUFFIX}") if not path.name.startswith("mmproj"))


def _choose_in_folder(folder: Path, tag: str, name: str) -> Path:
    """Return the folder if it is a checkpoint, else its only GGUF file that matches the tag."""
    if not tag and (hub_cache.is_usable(folder) or not _list_gguf_files(folder)):
        return folder
    matches = [path for path in _list_gguf_files(folder) if tag.lower() in path.name.lower()]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(path.name for path in matches or _list_gguf_files(folder))
    what = (
        f"contains {len(matches)} GGUF files" if matches else f"contains no GGUF file with {tag} in its name"
    )
    raise UsageError(f"{name} {what}", why=names[:300], todo=f"name one: {name}:Q4_K_M, or its path")


def _build_unknown_error(model: str) -> UsageError:
    names = [name for spec in PRESETS.values() for name in (spec.name, *spec.hub)]
    names += [*hub_cache.map_cached_models(), *(name.removesuffix(":latest") for name in iter_ollama_names())]
    typed = {name.lower(): name for name in names}
    similar = [typed[name] for name in difflib.get_close_matches(model.lower(), typed, n=2, cutoff=0.5)]
    repository = parse_repository(model)[0]
    searched = f"searched: paths, {hub_cache.find_hub_folder()[0]}, {list_ollama_folders()[0]}"
    todo = f"did you mean {' or '.join(similar)}?" if similar else f"known models: {', '.join(PRESETS)}"
    if repository:
        todo += "; --download fetches it from huggingface.co"
    why = "; ".join(filter(None, (searched, describe_broken_families())))
    return UsageError(f"unknown model {model}", why=why, todo=todo)


def list_ollama_folders() -> list[Path]:
    """List the folders of models: the one set in OLLAMA_MODELS, or the user's and the service's."""
    if folder := os.environ.get("OLLAMA_MODELS"):
        return [Path(folder).expanduser()]
    return [Path.home() / ".ollama" / "models", SERVICE_FOLDER]


def iter_ollama_names() -> Iterator[str]:
    """Iterate over the names of all models, as Ollama writes them."""
    for folder in list_ollama_folders():
        root = folder / "manifests"
        try:
            manifests = sorted(path for path in root.glob("*/*/*/*") if path.is_file())
        except OSError:
            continue
        for path in manifests:
            host, owner, name, tag = path.relative_to(root).parts
            prefix = [part for part in (host, owner) if part not in (REGISTRY, LIBRARY)]
            yield "/".join([*prefix, f"{name}:{tag}"])


def find_blob(model: str) -> Path | None:
    """Return the weights file of a model; None if Ollama does not have it here."""
    parts = _parse_name(model)
    if parts is None:
        return None
    for folder in list_ollama_folders():
        digest = _read_weights_digest(folder.joinpath("manifests", *parts))
        blob = folder / "blobs" / digest.replace(":", "-") if digest else None
        if blob and blob.is_file():
            return blob
    return None


def _parse_name(model: str) -> tuple[str, str, str, str] | None:
    """Split a name into host, owner, name and tag; None if it is not a valid name of Ollama."""
    name, _, tag = model.partition(":")
    parts = name.split("/")
    full = (*(REGISTRY, LIBRARY)[: 3 - len(parts)], *parts, tag or "latest")
    if len(full) != 4 or not all(NAME_PART.fullmatch(part) for part in full):
        return None
    return full[0], full[1], full[2], full[3]


def _read_weights_digest(manifest: Path) -> str:
    """Return the digest of the weights in a manifest; empty if there is none."""
    try:
        layers: Any = json.loads(manifest.read_bytes()[:MAX_MANIFEST_BYTES])["layers"]
        digests = [str(layer["digest"]) for layer in layers if layer["mediaType"] == WEIGHTS_MEDIA_TYPE]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return next((digest for digest in digests if DIGEST.fullmatch(digest)), "")


def survey_models() -> dict[str, Any]:
    """Describe the local weights of every preset, and all other local models."""
    folder, reason = hub_cache.find_hub_folder()
    published = {name.lower() for spec in PRESETS.values() for name in spec.hub}
    others = [name for name in hub_cache.map_cached_models() if name.lower() not in published]
    return {
        "folder": str(folder),
        "why": reason,
        "there": folder.is_dir(),
        "found": [entry for spec in PRESETS.values() for entry in survey_preset(spec)],
        "others": [_inspect_other(name) for name in (*others, *iter_ollama_names())],
        "ollama": [{"folder": str(place), "there": place.is_dir()} for place in list_ollama_folders()],
    }


def survey_preset(spec: Spec) -> list[dict[str, Any]]:
    """Return the cached folders of a preset, usable ones first, or its hub names if there are none."""
    folders = sorted(hub_cache.list_cached_folders(spec), key=lambda folder: not hub_cache.is_usable(folder))
    entries = [{"model": spec.name, **_inspect_folder(folder, spec)} for folder in folders]
    return entries or [{"model": spec.name, "names": list(spec.hub)}]


def _inspect_other(name: str) -> dict[str, Any]:
    """Describe where a model without preset is, or why it would be refused."""
    try:
        path = resolve_model(name).path
        if path is None:
            raise EngineError("its weights are not on this machine")
        if path.is_file():
            stored_as = read_gguf_model(path, name).stored_as
            return {"model": name, "file": str(path), "bytes": _read_file_size(path), "stored_as": stored_as}
        return {"model": name, **_inspect_folder(path, hub_cache.read_spec(path, name))}
    except CaptureError as e:
        return {"model": name, "refused": str(e)}


def _inspect_folder(folder: Path, spec: Spec) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "folder": str(folder),
        "config": (folder / "config.json").is_file(),
        "tokenizer": (folder / "tokenizer.json").is_file(),
    }
    try:
        shards = list_shard_files(folder)
        facts |= {"shards": len(shards), "bytes": sum(_read_file_size(path) for path in shards)}
        shapes = list_stored_tensors(hub_cache.read_spec(folder, spec.name))
        check_tensors(read_headers(folder), shapes, folder)
    except EngineError as e:
        facts["refused"] = str(e)
    return facts


def _read_file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
