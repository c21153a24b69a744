"""A place in a mangled C++ name, and what the name refers back to."""

import re
from typing import Final

LONGEST: Final = 1 << 14  # characters of a mangled name that are read, and of one piece of text that is built

_STD: Final = {
    "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
_TEMPLATE_PARAMETER: Final = re.compile(r"T([0-9A-Z]*)_")
_SUBSTITUTION: Final = re.compile(r"S([0-9A-Z]*)_")


class MangledError(ValueError):
    """A mangled name that this reader does not understand."""


class Cursor:
    """A place in one mangled name; its methods step over what they return."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.depth = 0
        self.earlier: list[str] = []  # what substitutions refer to
        self.parameters: list[str] = []  # template arguments of the function being read
        self.functions: dict[str, tuple[str, str]] = {}  # a function's type → what it returns, what it takes

    # text

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def take(self, wanted: str) -> bool:
        """Step over `wanted` if it is what comes next."""
        if self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise MangledError(f"no {wanted!r} at {self.at}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def remember(self, text: str) -> str:
        """Keep a piece for later substitutions; bounded, as substitutions can double a text each time."""
        if len(text) > LONGEST:
            raise MangledError("too long")
        self.earlier.append(text)
        return text

    def substitution(self) -> str:
        if self.peek(2) in _STD:
            self.at += 2
            return _STD[self.text[self.at - 2 : self.at]]
        match = self.match(_SUBSTITUTION)
        place = (int(match[1], 36) + 1 if match[1] else 0) if match else len(self.earlier)
        if place >= len(self.earlier):
            raise MangledError(f"refers to nothing at {self.at}")
        return self.earlier[place]

    def template_parameter(self) -> str:
        match = self.match(_TEMPLATE_PARAMETER)
        if not match:
            raise MangledError(f"no template parameter at {self.at}")
        place = int(match[1], 36) + 1 if match[1] else 0
        return self.parameters[place] if place < len(self.parameters) else "auto"
