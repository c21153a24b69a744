"""The installed guides: one Markdown file per topic, the glossary, and the man page."""

import re
from pathlib import Path
from typing import Final

from capture.errors import UsageError, suggest_nearest

# A guide is one Markdown file here and one line in this tuple; the order is the order of `tracetui help`.
TOPICS: Final[tuple[str, ...]] = (
    "opening",
    "views",
    "keys",
    "kernels-and-roofs",
    "growth",
    "live",
    "gpu",
    "servers",
    "recording",
    "comparing",
    "gating",
    "evidence",
    "history",
    "ranks",
    "fleet",
    "training",
    "quantisation",
    "sharing",
    "scripting",
    "native-format",
    "benchmarks",
    "exit-codes",
    "glossary",
)

_TERM: Final = re.compile(
    r"^- \*\*(?P<term>[^*]+)\*\*: (?P<meaning>.+?)(?=\n(?!  )|\Z)", re.DOTALL | re.MULTILINE
)


def read_guide(topic: str) -> str:
    """Return the Markdown of a guide; raise UsageError for an unknown topic."""
    if topic not in TOPICS:
        todo = suggest_nearest(topic, TOPICS, f"choose one of: {', '.join(TOPICS)}", "tracetui help {}")
        raise UsageError(f"no guide is called {topic!r}", todo=todo)
    return (Path(__file__).parent / f"{topic}.md").read_text(encoding="utf-8")


def read_title(topic: str) -> str:
    """Return the heading of a guide."""
    return read_guide(topic).split("\n", 1)[0].removeprefix("# ").strip()


def read_glossary() -> list[tuple[str, str]]:
    """Return every glossary term with its meaning in one line, in the order of the file."""
    entries = _TERM.finditer(read_guide("glossary"))
    return [(entry["term"], " ".join(entry["meaning"].split())) for entry in entries]
