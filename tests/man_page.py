"""Writes the man page from the parsers: `python -m tests.docs` puts it beside the guides; a test checks."""

from argparse import SUPPRESS, Action
from collections.abc import Iterator

from tests.commands import parser_of
from tracetui.cli import EPILOG
from tracetui.guides import TOPICS, read_title
from tracetui.verbs import EXAMPLES, VERBS

ABOUT = (
    "tracetui shows where the time of LLM inference goes: it opens the profiles of many tools, watches "
    "engines while they decode, and says what changed between two runs. A file without a command is opened; "
    "without anything it offers what was opened last, recordings and samples."
)


def man_page() -> str:
    """Return the page in roff, for section 1."""
    lines = [
        '.TH TRACETUI 1 "" "tracetui" "User Commands"',
        ".SH NAME",
        r"tracetui \- watch, open and compare LLM-inference kernel profiles",
        ".SH SYNOPSIS",
        ".B tracetui",
        ".I FILE\\fR...",
        ".br",
        ".B tracetui",
        ".I COMMAND",
        r"[\fIOPTION\fR]... [\fIFILE\fR]...",
        ".SH DESCRIPTION",
        text(ABOUT),
        ".SH COMMANDS",
        *(line for verb in VERBS for line in _command(verb)),
        ".SH EXIT STATUS",
        text(EPILOG.partition(":")[2].replace("\n", " ").strip()),
        ".SH GUIDES",
        ".PP",
        text("tracetui help TOPIC prints one:"),
        *(line for topic in TOPICS for line in (".TP", f"\\fB{text(topic)}\\fR", text(read_title(topic)))),
    ]
    return "\n".join(lines) + "\n"


def _command(verb: str) -> Iterator[str]:
    yield f".SS tracetui {text(verb)}"
    yield text(f"{VERBS[verb][0].upper()}{VERBS[verb][1:]}.")
    for action in parser_of(verb)._actions:
        if action.help and action.help is not SUPPRESS and action.dest != "help":
            yield ".TP"
            yield f"\\fB{text(_named(action))}\\fR"
            yield text(action.help % {"default": action.default, "prog": "tracetui"})
    yield from (".PP", "Examples:", ".nf", *(f"    {text(example)}" for example in EXAMPLES[verb]), ".fi")


def _named(action: Action) -> str:
    """Return an option with what it takes, or what stands for an argument."""
    shown = action.metavar or (None if action.nargs == 0 else action.dest.upper())
    values = " ".join(shown) if isinstance(shown, tuple) else shown or ""
    if action.choices is not None and len(list(action.choices)) < 12:
        values = "|".join(map(str, action.choices))
    return " ".join(filter(None, (", ".join(action.option_strings), values)))


def text(words: str) -> str:
    """Return words as roff shows them: no request, no escape, a minus that can be copied."""
    safe = words.replace("\\", r"\e").replace("-", r"\-")
    safe = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in safe)
    return f"\\&{safe}" if safe[:1] in (".", "'") else safe
