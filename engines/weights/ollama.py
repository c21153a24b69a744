"""Find models that Ollama keeps on this machine: a manifest a name, and in it the file of the weights."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

LIMIT: Final = 1 << 20  # bytes of a manifest
WEIGHTS: Final = "application/vnd.ollama.image.model"
REGISTRY, LIBRARY = "registry.ollama.ai", "library"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SERVICE: Final = Path("/usr/share/ollama/.ollama/models")  # where the service on Linux keeps them


def folders() -> list[Path]:
    """Return where Ollama keeps models: in the stated folder, else in the user's and in the service's."""
    if stated := os.environ.get("OLLAMA_MODELS"):
        return [Path(stated).expanduser()]
    return [Path.home() / ".ollama" / "models", SERVICE]


def names() -> Iterator[str]:
    """Yield the names of all models, as Ollama writes them."""
    for folder in folders():
        root = folder / "manifests"
        try:
            manifests = sorted(path for path in root.glob("*/*/*/*") if path.is_file())
        except OSError:
            continue
        for path in manifests:
            host, owner, name, tag = path.relative_to(root).parts
            front = [part for part in (host, owner) if part not in (REGISTRY, LIBRARY)]
            yield "/".join([*front, f"{name}:{tag}"])


def blob_of(model: str) -> Path | None:
    """Return the file of a model's weights; None where Ollama has no such model here."""
    parts = _parts(model)
    if parts is None:
        return None
    for folder in folders():
        digest = _digest(folder.joinpath("manifests", *parts))
        blob = folder / "blobs" / digest.replace(":", "-") if digest else None
        if blob and blob.is_file():
            return blob
    return None


def _parts(model: str) -> tuple[str, str, str, str] | None:
    """Return host, owner, name and tag of a name; None for one that Ollama could not have."""
    name, _, tag = model.partition(":")
    parts = name.split("/")
    whole = (*(REGISTRY, LIBRARY)[: 3 - len(parts)], *parts, tag or "latest")
    if len(whole) != 4 or not all(PART.fullmatch(part) for part in whole):
        return None
    return whole[0], whole[1], whole[2], whole[3]


def _digest(manifest: Path) -> str:
    """Return the digest of the weights that a manifest names; empty where it names none."""
    try:
        layers: Any = json.loads(manifest.read_bytes()[:LIMIT])["layers"]
        digests = [str(layer["digest"]) for layer in layers if layer["mediaType"] == WEIGHTS]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return next((digest for digest in digests if DIGEST.fullmatch(digest)), "")
