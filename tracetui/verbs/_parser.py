"""The parser of a command: what is wrong with the words is one sentence, with what was probably meant."""

import re
from argparse import ArgumentParser
from typing import Final, NoReturn

from capture.errors import UsageError
from capture.nearest import did_you_mean

_UNKNOWN: Final = re.compile(r"unrecognized arguments: (?P<words>.*)", re.DOTALL)
_CHOICE: Final = re.compile(
    r"argument (?P<option>\S+): invalid choice: '(?P<word>.*)' \(choose from (?P<known>.*)\)", re.DOTALL
)


class Parser(ArgumentParser):
    """Raises UsageError where argparse would print its usage and leave."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError for what argparse says."""
        help_lists = f"{self.prog} --help lists its options"
        if found := _UNKNOWN.fullmatch(message):
            word = next((w for w in found["words"].split() if w.startswith("-")), found["words"])
            known = [*self._option_string_actions]
            todo = did_you_mean(word.partition("=")[0], known, help_lists)
            raise UsageError(f"{self.prog} has no option {word}", todo=todo)
        if found := _CHOICE.fullmatch(message):
            known = re.findall(r"[\w.-]+", found["known"])
            todo = did_you_mean(found["word"], known, f"choose one of {', '.join(known)}")
            raise UsageError(f"{found['option'].rpartition('/')[2]} takes no {found['word']!r}", todo=todo)
        raise UsageError(message, todo=help_lists)
