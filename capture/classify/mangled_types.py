"""Types, template arguments, literals and expressions within mangled C++ names."""

import re
from abc import abstractmethod
from typing import Final

from capture.classify.mangled_cursor import Cursor, MangledError

_DEEPEST: Final = 120

_BUILTIN: Final = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
    "d": "double", "e": "long double", "g": "__float128", "z": "...",
    "Dd": "decimal64", "De": "decimal128", "Df": "decimal32", "Dh": "half", "Di": "char32_t",
    "Ds": "char16_t", "Du": "char8_t", "Da": "auto", "Dc": "decltype(auto)", "Dn": "std::nullptr_t",
}  # fmt: skip
_SUFFIX: Final = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul"}
OPERATOR: Final = {
    "nw": "new", "dl": "delete", "ad": "&", "de": "*", "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/",
    "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">",
    "le": "<=", "ge": ">=", "nt": "!", "aa": "&&", "oo": "||", "ls": "<<", "rs": ">>", "cl": "()", "ix": "[]",
    "pt": "->", "ng": "-", "ps": "+", "pp": "++", "mm": "--", "cm": ",", "qu": "?",
}  # fmt: skip
_UNARY: Final = frozenset({"ad", "de", "co", "nt", "ng", "ps"})
_WRAPPED: Final = {"P": "*", "R": "&", "O": "&&", "C": " complex", "G": " imaginary"}
_FLOAT: Final = re.compile(r"DF(\d+)(_|b|x)")
_VALUE: Final = re.compile(r"n?[0-9a-f]*")
_DECLARES: Final = re.compile(r"T[ynptk]")
_BITS: Final = re.compile(r"D[BU](\d+)_")
_DIMENSION: Final = re.compile(r"[AD]v?(\d*)_")
_QUALIFIERS: Final = re.compile(r"[rVK]+")


class TypeReader(Cursor):
    """Reads types and template arguments; names are read by who extends it."""

    @abstractmethod
    def name(self, *, function: bool = False) -> tuple[str, bool]:
        """Return a name, and whether it ends in template arguments."""

    @abstractmethod
    def encoding(self) -> str:
        """Return a function within a name, with its parameters."""

    @abstractmethod
    def source_name(self) -> str:
        """Return an identifier that is preceded by its length."""

    def template_arguments(self, *, function: bool = False) -> str:
        self.expect("I")
        arguments: list[str] = []
        if function:
            self.parameters = arguments
        while not self.take("E"):
            arguments.append(self.template_argument())
        return "<" + ", ".join(a for a in arguments if a) + ">"

    def template_argument(self) -> str:
        if _DECLARES.match(self.text, self.at):
            self.declaration()
        if self.take("X"):
            expression = self.expression()
            self.expect("E")
            return expression
        if self.peek() == "L":
            return self.literal()
        if self.take("J"):
            pack = []
            while not self.take("E"):
                pack.append(self.template_argument())
            return ", ".join(pack)
        return self.type()

    def declaration(self) -> None:
        """Step over what declares a template parameter before its argument."""
        self.at += 1
        kind = self.peek()
        self.at += 1
        if kind == "n":
            self.type()
        elif kind == "p":
            self.declaration()
        elif kind == "k":
            self.name()
        elif kind == "t":
            while not self.take("E"):
                self.declaration()

    def literal(self) -> str:
        self.expect("L")
        if self.take("_Z"):
            text = self.encoding()
            self.expect("E")
            return text
        type_ = self.type()
        match = self.match(_VALUE)
        value = (match[0] if match else "").replace("n", "-")
        self.expect("E")
        if type_ == "bool":
            return "true" if value == "1" else "false"
        return value + _SUFFIX[type_] if type_ in _SUFFIX else f"({type_}){value}"

    def expression(self) -> str:
        if self.peek() == "L":
            return self.literal()
        if self.peek() == "T":
            return self.template_parameter()
        code = self.peek(2)
        if code not in OPERATOR:
            raise MangledError(f"no expression at {self.at}")
        self.at += 2
        first = self.expression()
        if code in _UNARY:
            return f"{OPERATOR[code]}({first})" if " " in first else OPERATOR[code] + first
        return f"({first} {OPERATOR[code]} {self.expression()})"

    def type(self) -> str:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise MangledError("too deep")
        try:
            return self.builtin() or self.compound()
        finally:
            self.depth -= 1

    def builtin(self) -> str | None:
        if match := self.match(_FLOAT):
            return {
                "_": f"_Float{match[1]}",
                "b": "bf16" if match[1] == "16" else "std::bfloat",
                "x": "float",
            }[match[2]]
        if match := self.match(_BITS):
            return f"_BitInt({match[1]})"
        if self.peek() == "u" and self.take("u"):
            return self.source_name()
        for width in (2, 1):
            if self.peek(width) in _BUILTIN and (text := self.peek(width)):
                self.at += width
                return _BUILTIN[text]
        return None

    def compound(self) -> str:
        if qualifiers := self.match(_QUALIFIERS):
            inner = self.type()
            return self.remember(inner + " const" if "K" in qualifiers[0] else inner)
        first = self.peek()
        if first in _WRAPPED:
            self.at += 1
            inner = self.type()
            if inner in self.functions:
                returned, parameters = self.functions[inner]
                return self.remember(f"{returned} ({_WRAPPED[first]})({parameters})")
            return self.remember(inner + _WRAPPED[first])
        if first == "F":
            return self.remember(self.function_type())
        if match := self.match(_DIMENSION):
            return self.remember(f"{self.type()} [{match[1]}]")
        if first == "M":
            self.at += 1
            owner = self.type()
            return self.remember(f"{self.type()} {owner}::*")
        if first == "U":
            self.at += 1
            self.source_name()  # a vendor's qualifier, such as an address space
            return self.remember(self.type())
        return self.referred()

    def function_type(self) -> str:
        self.expect("F")
        self.take("Y")
        returned = self.type()
        parameters = []
        while not self.take("E"):
            parameters.append(self.type())
        listed = ", ".join(p for p in parameters if p != "void")
        self.functions[f"{returned} ({listed})"] = returned, listed
        return f"{returned} ({listed})"

    def referred(self) -> str:
        """Return a type that is told by a name, a template parameter or an earlier piece."""
        if self.peek(2) in ("Dp", "Dt", "DT"):
            if not self.take("Dp"):
                self.at += 2
                expression = self.expression()
                self.expect("E")
                return self.remember(f"decltype({expression})")
            return self.remember(self.type())
        if self.peek() == "T" and self.peek(2) not in ("Ts", "Tu", "Te"):
            text = self.remember(self.template_parameter())
            return self.remember(text + self.template_arguments()) if self.peek() == "I" else text
        if self.peek() == "T":
            self.at += 2
        if self.peek() == "S" and self.peek(2) != "St":
            text = self.substitution()
            return self.remember(text + self.template_arguments()) if self.peek() == "I" else text
        return self.remember(self.name()[0])
