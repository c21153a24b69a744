"""The guides: Markdown files of this folder, one a topic, and the glossary as a list of terms."""

import re
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from capture.nearest import did_you_mean

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
    "ranks",
    "fleet",
    "training",
    "quantisation",
    "sharing",
    "scripting",
    "native-format",
    "exit-codes",
    "glossary",
)

_TERM: Final = re.compile(
    r"^- \*\*(?P<term>[^*]+)\*\*: (?P<meaning>.+?)(?=\n(?!  )|\Z)", re.DOTALL | re.MULTILINE
)


def guide(topic: str) -> str:
    """Return the Markdown of a guide; raise UsageError for a topic that is none."""
    if topic not in TOPICS:
        todo = did_you_mean(topic, TOPICS, f"choose one of: {', '.join(TOPICS)}", "tracetui help {}")
        raise UsageError(f"no guide is called {topic!r}", todo=todo)
    return (Path(__file__).parent / f"{topic}.md").read_text(encoding="utf-8")


def title(topic: str) -> str:
    """Return the heading of a guide: what it is for, in a few words."""
    return guide(topic).split("\n", 1)[0].removeprefix("# ").strip()


def glossary() -> list[tuple[str, str]]:
    """Return every term of the glossary with its meaning on one line, in the order of the file."""
    entries = _TERM.finditer(guide("glossary"))
    return [(entry["term"], " ".join(entry["meaning"].split())) for entry in entries]
