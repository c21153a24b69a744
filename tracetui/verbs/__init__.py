"""The commands of `tracetui`, one module each: `options(parser)` adds its options, `run(args)` runs it.

- open: open saved profiles on the screen
- live: watch an engine decode, kernel by kernel
- record: record an engine or a program without a screen
- recordings: list recordings, or remove the oldest
- replay: play a recording as if it were live
- diff: compare two runs, with evidence; a gate for CI
- compare: compare many runs in one matrix
- baseline: save a run under a name: baseline:NAME
- report: print a view: table, json, csv, md or html
- export: write a run as .jsonl .parquet .csv .json (Chrome trace), a view as .html .md .svg .png
- digest: summarise a run, or a change, within a token budget
- query: run SQL over the events and answers of a run
- schema: print the JSON schema of --format json
- formats: list the formats that can be opened, and how to produce them
- config: print the settings of the screen, and where each comes from
- doctor: check what this machine, or a file, can do
- mcp: serve the profiles of a folder as tools for an agent
- completion: print a completion script for bash, zsh or fish
- version: print the versions of tracetui and its packages
- help: print a guide: tracetui help comparing

Shared by commands:
- _options: options that several commands have; read files, build a look, print a status
- _engine_options: options and start of engines, servers, folders and processes to watch
- _recording: record a program, a running process, or several repeats
- _comparison_sides: the two sides of a comparison, from files or recorded in turn
- _many_files: one question about many files, with progress
"""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Final, Protocol, cast

# A command is one module here and one line in this table.
VERBS: Final = {
    "open": "open saved profiles on the screen",
    "live": "watch an engine decode, kernel by kernel",
    "record": "record an engine or a program without a screen",
    "recordings": "list recordings, or remove the oldest",
    "replay": "play a recording as if it were live",
    "diff": "compare two runs, with evidence; a gate for CI",
    "compare": "compare many runs in one matrix",
    "baseline": "save a run under a name: baseline:NAME",
    "report": "print a view: table, json, csv, md or html",
    "export": "write a run as .jsonl .parquet .csv .json (Chrome trace), a view as .html .md .svg .png",
    "digest": "summarise a run, or a change, within a token budget",
    "query": "run SQL over the events and answers of a run",
    "schema": "print the JSON schema of --format json",
    "formats": "list the formats that can be opened, and how to produce them",
    "config": "print the settings of the screen, and where each comes from",
    "doctor": "check what this machine, or a file, can do",
    "mcp": "serve the profiles of a folder as tools for an agent",
    "completion": "print a completion script for bash, zsh or fish",
    "version": "print the versions of tracetui and its packages",
    "help": "print a guide: tracetui help comparing",
}
LIVE_WRITERS: Final = ("record", "replay")  # run next to a busy program; live starts that first
# read runs and answer questions about them
READERS: Final = ("open", "diff", "compare", "report", "digest", "query", "mcp")


class Verb(Protocol):
    """Interface of a command module."""

    def options(self, parser: ArgumentParser) -> None: ...

    def run(self, args: Namespace) -> int: ...


def load_verb(name: str) -> Verb:
    """Import the module of a command."""
    return cast(Verb, import_module(f"tracetui.verbs.{name}"))
