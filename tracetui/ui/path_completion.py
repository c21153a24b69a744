"""A path that is being typed: what it can become, and which file it means."""

from itertools import takewhile
from pathlib import Path

from capture.text import clean


def completed(text: str) -> tuple[str, list[str]]:
    """Return the text completed as far as all names agree, and these names; a folder ends in a slash."""
    cut = text.rfind("/") + 1
    folder, start = text[:cut], text[cut:]
    names = sorted(_names(folder, start))
    return (folder + _common(names) if names else text), names


def _common(names: list[str]) -> str:
    """Return what sorted names begin with: where the first and the last agree, all do."""
    agreeing = takewhile(lambda pair: pair[0] == pair[1], zip(names[0], names[-1], strict=False))
    return "".join(letter for letter, _ in agreeing)


def _names(folder: str, start: str) -> list[str]:
    """Hidden files only where a dot was typed; none that cannot be typed."""
    try:
        found = [p for p in Path(folder).expanduser().iterdir() if p.name.startswith(start)]
        typable = [p for p in found if clean(p.name) == p.name and (start or not p.name.startswith("."))]
        return [p.name + "/" * p.is_dir() for p in typable]
    except (OSError, ValueError, RuntimeError):  # no folder, no path, nobody's home
        return []


def meant(text: str) -> Path:
    """Return the path as a shell would have it: without quotes, with `~` for home."""
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"":
        bare = bare[1:-1]
    try:
        return Path(bare).expanduser()
    except RuntimeError:
        return Path(bare)
