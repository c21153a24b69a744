"""`tracetui help [TOPIC]`: a guide, the guide of a command or view, or the meaning of a term."""

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from capture.errors import UsageError, suggest_nearest
from tracetui.guides import TOPICS, read_glossary, read_guide, read_title
from tracetui.verbs import VERBS

GUIDE_OF_COMMAND: Final = {
    "open": "opening", "live": "live", "record": "recording", "load": "servers", "recordings": "live",
    "replay": "live", "diff": "comparing", "compare": "comparing", "baseline": "comparing",
    "report": "views", "export": "sharing", "query": "scripting", "digest": "scripting",
    "schema": "scripting", "formats": "opening", "completion": "scripting", "mcp": "scripting",
    "version": "scripting", "config": "keys", "doctor": "kernels-and-roofs",
    "log": "history", "trend": "history", "bisect": "history",
}  # fmt: skip


def options(parser: ArgumentParser) -> None:
    about = "a guide, a command, a view or a term; without one all guides are listed"
    parser.add_argument("topic", nargs="?", help=about)


def run(args: Namespace) -> int:
    _print_paged(_format_overview() if args.topic in (None, "help") else find_help(args.topic))
    return 0


def find_help(topic: str) -> str:
    """Return the guide of a topic, command or view, or the meaning of a term; raise UsageError otherwise."""
    from tracetui.views import list_view_names

    word = topic.lower()
    terms = {name: (term, meaning) for term, meaning in read_glossary() for name in term.lower().split(", ")}
    guides = {**dict.fromkeys(list_view_names(), "views"), **GUIDE_OF_COMMAND, **{t: t for t in TOPICS}}
    if word in guides:
        return read_guide(guides[word])
    if word in terms:
        return "{}: {}\n".format(*terms[word])
    all_topics = f"choose one of: {', '.join(TOPICS)}"
    todo = suggest_nearest(word, [*guides, *terms], all_topics, "tracetui help {}")
    raise UsageError(f"no guide is called {topic!r}", todo=todo)


def _format_overview() -> str:
    """Return the list of the guides, one per line, and how to find more."""
    width = max(map(len, TOPICS))
    lines = [f"  {topic:{width}}  {read_title(topic)}" for topic in TOPICS]
    commands = ", ".join(verb for verb in VERBS if verb != "help")
    rest = [
        f"`tracetui help COMMAND` prints the guide of {commands}",
        "`tracetui help WORD` explains a word of the screen, such as lens, roof or folded",
        "`tracetui COMMAND --help` lists the options of a command",
    ]
    return "\n".join(["guides: tracetui help TOPIC", "", *lines, "", *rest, ""])


def _print_paged(text: str) -> None:
    """Print through the user's pager on a terminal, plainly elsewhere."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from pydoc import pager

    os.environ.setdefault("LESS", "-R")
    pager(text)
