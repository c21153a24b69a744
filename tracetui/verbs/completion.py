"""`tracetui completion SHELL`: a script that makes a shell complete commands, options, views and files."""

import sys
from argparse import Action, ArgumentParser, Namespace
from typing import Final

import shtab

from tracetui import verbs

SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = ("files", "a", "b", "aa", "out", "output", "capture", "traces", "watch")  # that take a file


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def run(args: Namespace) -> int:
    """Print the script and return the exit code."""
    sys.stdout.write(shtab.complete(_whole_parser(), shell=args.shell))
    return 0


def _whole_parser() -> ArgumentParser:
    """Return one parser of all commands, in which shtab finds what can be completed."""
    from tracetui.views import views

    parser = ArgumentParser("tracetui", description="watch, open and compare LLM-inference kernel profiles")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command")
    names = [view.name for view in views()]
    for name, about in verbs.VERBS.items():
        own = commands.add_parser(name, help=about, description=about)
        verbs.verb(name).options(own)
        for action in own._actions:
            _tell(action, names)
    return parser


def _tell(action: Action, views: list[str]) -> None:
    """Note on an option what its values are, where its parser leaves that to the command."""
    if action.dest == "view" and action.choices is None:
        action.choices = views
    elif action.dest in _FILES and action.nargs != 0:
        action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
