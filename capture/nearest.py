"""The word that a person probably meant, among those that exist."""

from collections.abc import Iterable
from typing import Final

LONGEST: Final = 200  # characters of a word that may be a slip


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the word that is most like another one, small and large letters alike; None where none is."""
    from difflib import get_close_matches

    by_letters = {name.lower(): name for name in known}
    near = get_close_matches(word[:LONGEST].lower(), by_letters, n=1)
    return by_letters[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str, form: str = "{}") -> str:
    """Return the question whether the nearest word was meant, written in a form; `otherwise` without one."""
    near = nearest(word, known)
    return f"did you mean {form.format(near)}?" if near else otherwise
