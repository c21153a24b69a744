"""Errors whose message is shown to the user, and the nearest word to a misspelt one."""

from collections.abc import Iterable
from typing import Final

MAX_WORD_CHARS: Final = 200  # longer words are cut before the search


class CaptureError(Exception):
    """An error in one sentence: what went wrong, where, why, and what to do about it."""

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", why: str = "", todo: str = "") -> None:
        self.what, self.where, self.why, self.todo = what, where, why, todo
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        parts = [head + (f" ({self.why})" if self.why else "")]
        if self.todo:
            parts.append(self.todo)
        return "; ".join(parts)


class UnreadableError(CaptureError):
    """The input is not a readable profile."""


class UnforeseenError(UnreadableError):
    """The loader failed on an input that it was not written for: a bug; `__cause__` has the details."""


class UsageError(CaptureError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class PartialError(CaptureError):
    """Only part of the input was readable, or the runs are not comparable, in strict mode."""

    exit_code = 4


class EngineError(CaptureError):
    """The engine failed."""

    exit_code = 5


def find_nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the word most similar to `word`, ignoring case, or None if none is similar."""
    from difflib import get_close_matches

    by_lower_case = {name.lower(): name for name in words}
    matches = get_close_matches(word[:MAX_WORD_CHARS].lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else None


def suggest_nearest(word: str, words: Iterable[str], otherwise: str, form: str = "{}") -> str:
    """Return "did you mean …?" with the nearest word in `form`, or `otherwise` if there is none."""
    match = find_nearest(word, words)
    return f"did you mean {form.format(match)}?" if match else otherwise
