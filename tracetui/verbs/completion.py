"""`tracetui completion SHELL`: a script that completes commands, options, views and files."""

import sys
from argparse import Action, ArgumentParser, Namespace
from typing import Final

import shtab

from tracetui import verbs

SHELLS: Final = ("bash", "zsh", "fish")
# options that take a file
_FILE_OPTIONS: Final = ("files", "a", "b", "aa", "out", "output", "capture", "config", "traces", "watch")


def options(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="shell that reads the script")


def run(args: Namespace) -> int:
    """Print the script and return the exit code."""
    sys.stdout.write(shtab.complete(_build_full_parser(), shell=args.shell))
    return 0


def _build_full_parser() -> ArgumentParser:
    """Build one parser of all commands, for shtab."""
    from tracetui.views import load_views

    parser = ArgumentParser("tracetui", description="watch, open and compare LLM-inference kernel profiles")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command")
    names = [view.name for view in load_views()]
    for name, about in verbs.VERBS.items():
        command = commands.add_parser(name, help=about, description=about)
        verbs.load_verb(name).options(command)
        for action in command._actions:
            _set_completion(action, names)
    return parser


def _set_completion(action: Action, views: list[str]) -> None:
    """Set the values of an option that its own parser leaves open."""
    if action.dest == "view" and action.choices is None:
        action.choices = views
    elif action.dest in _FILE_OPTIONS and action.nargs != 0:
        action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
