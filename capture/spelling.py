"""Suggest the known word closest to a misspelt one."""

from collections.abc import Iterable
from typing import Final

MAX_WORD_CHARS: Final = 200  # longer words are cut before the search


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
