"""`tracetui help [TOPIC]`: the installed guides, the guide of a command, or the meaning of a term."""

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from capture.errors import UsageError
from capture.nearest import did_you_mean
from tracetui.guides import TOPICS, glossary, guide, title
from tracetui.verbs import VERBS

# The guide behind each command.
GUIDES: Final = {
    "open": "opening",
    "live": "live",
    "record": "recording",
    "recordings": "live",
    "replay": "live",
    "diff": "comparing",
    "compare": "comparing",
    "baseline": "comparing",
    "report": "views",
    "export": "sharing",
    "query": "scripting",
    "digest": "scripting",
    "schema": "scripting",
    "formats": "opening",
    "completion": "scripting",
    "mcp": "scripting",
    "version": "scripting",
    "config": "keys",
    "doctor": "kernels-and-roofs",
}


def options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="?", help="a guide, a command, a view or a term; without one all guides are listed"
    )


def run(args: Namespace) -> int:
    _show(_overview() if args.topic in (None, "help") else explain(args.topic))
    return 0


def explain(topic: str) -> str:
    """Return a guide by topic, command or view, or the meaning of a term; raise UsageError otherwise."""
    from tracetui.views import VIEWS

    word = topic.lower()
    terms = {name: (term, meaning) for term, meaning in glossary() for name in term.lower().split(", ")}
    guides = {**dict.fromkeys([*VIEWS, "import"], "views"), **GUIDES, **{t: t for t in TOPICS}}
    if word in guides:
        return guide(guides[word])
    if word in terms:
        return "{}: {}\n".format(*terms[word])
    all_topics = f"choose one of: {', '.join(TOPICS)}"
    todo = did_you_mean(word, [*guides, *terms], all_topics, "tracetui help {}")
    raise UsageError(f"no guide is called {topic!r}", todo=todo)


def _overview() -> str:
    """Return the list of the guides, a line each, and where the rest is explained."""
    width = max(map(len, TOPICS))
    lines = [f"  {topic:{width}}  {title(topic)}" for topic in TOPICS]
    commands = ", ".join(verb for verb in VERBS if verb != "help")
    rest = [
        f"`tracetui help COMMAND` prints the guide of {commands}",
        "`tracetui help WORD` explains a word of the screen, such as lens, roof or folded",
        "`tracetui COMMAND --help` lists the options of a command",
    ]
    return "\n".join(["guides: tracetui help TOPIC", "", *lines, "", *rest, ""])


def _show(text: str) -> None:
    """Print through the pager of the user where a person reads, plainly everywhere else."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from pydoc import pager

    os.environ.setdefault("LESS", "-R")
    pager(text)
