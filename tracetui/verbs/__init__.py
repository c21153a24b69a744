"""The commands, one module each: `options(parser)` and `run(args) -> exit code`."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Final, Protocol, cast

# A command is one module here and one line in this table.
VERBS: Final = {
    "open": "open saved profiles on the screen",
    "live": "watch an engine decode, kernel by kernel",
    "record": "the same without a screen",
    "recordings": "list what was recorded, and remove the oldest when asked",
    "replay": "play a recording as if it were live",
    "diff": "what changed between two runs, with evidence; a gate for CI",
    "compare": "many runs in one matrix",
    "baseline": "keep a run under a name: baseline:NAME",
    "report": "print a view: table, json, csv, md or html",
    "export": "write a run as .jsonl .parquet .csv .json (Chrome trace), a view as .html .md .svg .png",
    "digest": "a run, or a change, in a bounded number of tokens",
    "query": "SQL over the events and answers of a run",
    "schema": "the JSON schema of what --format json prints",
    "formats": "what is read, and how each is produced",
    "config": "keys, colours and columns of the screen, and where each is from",
    "doctor": "what this machine, or a file, can and cannot do",
    "mcp": "the profiles of a folder as tools for an agent",
    "completion": "a script that makes bash, zsh or fish complete",
    "version": "which version this is, and of what it is made",
    "help": "print a guide: tracetui help comparing",
}
BESIDE: Final = ("record", "replay")  # what stands beside a program that works; live starts that first
ASKING: Final = ("open", "diff", "compare", "report", "digest", "query", "mcp")  # read runs, to ask them


class Verb(Protocol):
    """The interface of a command module."""

    def options(self, parser: ArgumentParser) -> None: ...

    def run(self, args: Namespace) -> int: ...


def verb(name: str) -> Verb:
    """Return the command of a name."""
    return cast(Verb, import_module(f"tracetui.verbs.{name}"))
