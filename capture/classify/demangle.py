"""C++ names as compilers mangle them (Itanium ABI), read back: what kernels need of the grammar.

Names, templates, literals, expressions of template arguments, lambdas and substitutions are read; the
parameter list of the outermost function is left out, because no reader of a kernel's name wants it.
"""

import re
from functools import lru_cache
from typing import Final

from capture.classify.mangled_cursor import LONGEST, MangledError
from capture.classify.mangled_types import OPERATOR, TypeReader

_PIECE: Final = re.compile(r"(\d+)(?=[A-Za-z_])")
_LENGTH: Final = re.compile(r"[0-9]{1,5}")
_STRUCTOR: Final = re.compile(r"[CD]I?[0-5]")
_COUNT: Final = re.compile(r"(\d*)_")
_DISCRIMINATOR: Final = re.compile(r"__\d+_|_\d")


@lru_cache(maxsize=1 << 12)
def demangle(name: str) -> str | None:
    """Return the name that a mangled one stands for, without parameters; None where it is not understood."""
    if not name.startswith("_Z") or len(name) > LONGEST:
        return None
    try:
        return _NameReader(name, at=2).function_name()
    except (MangledError, RecursionError):
        return None


def plain_identifiers(name: str) -> list[str]:
    """Return the identifiers that stand at the front of a mangled name, as far as they can be told."""
    at = 3 if name.startswith("_ZN") else 2
    pieces = []
    while match := _PIECE.match(name, at):
        length = int(match[1][:4])
        pieces.append(name[match.end() : match.end() + length])
        at = match.end() + length
    return [p for p in pieces if p]


class _NameReader(TypeReader):
    """Reads one mangled name from its front; raises MangledError where it is not understood."""

    def function_name(self) -> str:
        """Return the name of the outermost function, without its parameters."""
        return self.name(function=True)[0]

    def encoding(self) -> str:
        """Return a function within a name, with its parameters."""
        before, self.parameters = self.parameters, []
        name, templated = self.name(function=True)
        if self.peek() in ("E", ""):
            self.parameters = before
            return name
        if templated:
            self.type()  # what it returns
        parameters = []
        while self.peek() not in ("E", "", "."):
            parameters.append(self.type())
        self.parameters = before
        return f"{name}({', '.join(p for p in parameters if p != 'void')})"

    def name(self, *, function: bool = False) -> tuple[str, bool]:
        """Return a name, and whether it ends in template arguments."""
        if self.take("N"):
            return self.nested(function=function)
        if self.take("Z"):
            return self.local(), False
        if self.peek() == "S" and self.peek(2) != "St":
            name = self.substitution()
        else:
            prefix = "std::" if self.take("St") else ""
            name = prefix + self.unqualified()
            if self.peek() == "I":
                self.remember(name)
        if self.peek() == "I":
            return name + self.template_arguments(function=function), True
        return name, False

    def nested(self, *, function: bool) -> tuple[str, bool]:
        while self.peek() in ("r", "V", "K", "R", "O"):
            self.at += 1
        so_far, templated = "", False
        while not self.take("E"):
            if self.peek() == "I":
                so_far, templated = so_far + self.template_arguments(function=function), True
                self.remember(so_far)
            elif self.peek() == "S" and self.peek(2) != "St":
                so_far, templated = self.substitution(), False
            elif self.peek() == "T":
                so_far, templated = self.remember(self.template_parameter()), False
            elif self.take("St"):
                so_far = "std"
            else:
                so_far = f"{so_far}::{self.unqualified()}" if so_far else self.unqualified()
                templated = False
                self.remember(so_far)
        if self.earlier and self.earlier[-1] == so_far:
            self.earlier.pop()  # the whole is remembered by whoever uses it as a type
        return so_far, templated

    def local(self) -> str:
        function = self.encoding()
        self.expect("E")
        if self.take("s"):
            entity = "string literal"
        else:
            if self.take("d"):
                self.match(_COUNT)
            entity = self.name()[0]
        self.match(_DISCRIMINATOR)
        return f"{function}::{entity}"

    def unqualified(self) -> str:
        self.take("L")  # internal linkage
        if self.peek().isdigit():
            name = self.source_name()
        elif self.take("Ut"):
            name = "{unnamed type#" + self.count_from_one() + "}"
        elif self.take("Ul"):
            name = self.lambda_name()
        elif self.match(_STRUCTOR):
            name = "{structor}"
        elif self.take("cv"):
            name = "operator " + self.type()
        elif self.peek(2) in OPERATOR:
            name = "operator" + OPERATOR[self.peek(2)]
            self.at += 2
        else:
            raise MangledError(f"no name at {self.at}")
        while self.take("B"):
            self.source_name()
        return name

    def source_name(self) -> str:
        match = self.match(_LENGTH)
        length = int(match[0]) if match else 0
        name = self.text[self.at : self.at + length]
        if not length or len(name) < length:
            raise MangledError(f"no identifier at {self.at}")
        self.at += length
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def lambda_name(self) -> str:
        types = []
        while not self.take("E"):
            types.append(self.type())
        given = ", ".join(t for t in types if t != "void")
        return "{lambda(" + given + ")#" + self.count_from_one() + "}"

    def count_from_one(self) -> str:
        match = self.match(_COUNT)
        if not match:
            raise MangledError(f"no count at {self.at}")
        return str(int(match[1]) + 2) if match[1] else "1"
