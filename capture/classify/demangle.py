"""Demangle Itanium C++ names as far as the names of kernels need it: one recursive-descent parser.

It reads names, templates, literals, expressions of template arguments, lambdas and substitutions. It leaves
out the parameter list of the outermost function, which no short name shows.
"""

import re
from functools import lru_cache
from typing import Final

_MAX_CHARS: Final = 1 << 14  # of a mangled name, and of any one piece of text that is built
_MAX_TYPE_DEPTH: Final = 120

_STD_ABBREVIATIONS: Final = {
    "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
_BUILTIN_TYPES: Final = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
    "d": "double", "e": "long double", "g": "__float128", "z": "...",
    "Dd": "decimal64", "De": "decimal128", "Df": "decimal32", "Dh": "half", "Di": "char32_t",
    "Ds": "char16_t", "Du": "char8_t", "Da": "auto", "Dc": "decltype(auto)", "Dn": "std::nullptr_t",
}  # fmt: skip
_OPERATORS: Final = {
    "nw": "new", "dl": "delete", "ad": "&", "de": "*", "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/",
    "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">",
    "le": "<=", "ge": ">=", "nt": "!", "aa": "&&", "oo": "||", "ls": "<<", "rs": ">>", "cl": "()", "ix": "[]",
    "pt": "->", "ng": "-", "ps": "+", "pp": "++", "mm": "--", "cm": ",", "qu": "?",
}  # fmt: skip
_UNARY_OPERATORS: Final = frozenset({"ad", "de", "co", "nt", "ng", "ps"})
_LITERAL_SUFFIXES: Final = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul"}
_TYPE_SUFFIXES: Final = {"P": "*", "R": "&", "O": "&&", "C": " complex", "G": " imaginary"}

_TEMPLATE_PARAMETER: Final = re.compile(r"T([0-9A-Z]*)_")
_SUBSTITUTION: Final = re.compile(r"S([0-9A-Z]*)_")
_SIZED_FLOAT: Final = re.compile(r"DF(\d+)(_|b|x)")
_SIZED_INTEGER: Final = re.compile(r"D[BU](\d+)_")
_DIMENSION: Final = re.compile(r"[AD]v?(\d*)_")
_QUALIFIERS: Final = re.compile(r"[rVK]+")
_LITERAL_VALUE: Final = re.compile(r"n?[0-9a-f]*")
_PARAMETER_DECLARATION: Final = re.compile(r"T[ynptk]")
_LENGTH: Final = re.compile(r"[0-9]{1,5}")
_STRUCTOR: Final = re.compile(r"[CD]I?[0-5]")
_COUNT: Final = re.compile(r"(\d*)_")
_DISCRIMINATOR: Final = re.compile(r"__\d+_|_\d")
_LEADING_LENGTH: Final = re.compile(r"(\d+)(?=[A-Za-z_])")


class _MangledError(ValueError):
    """A mangled name that this parser does not understand."""


@lru_cache(maxsize=1 << 12)
def demangle(name: str) -> str | None:
    """Demangle a name, without its parameters; None if it is not understood."""
    if not name.startswith("_Z") or len(name) > _MAX_CHARS:
        return None
    try:
        return _Parser(name, at=2).parse_name(is_function=True)[0]
    except (_MangledError, RecursionError):
        return None


def extract_identifiers(name: str) -> list[str]:
    """Extract the leading identifiers of a mangled name that `demangle` does not understand."""
    at = 3 if name.startswith("_ZN") else 2
    identifiers = []
    while match := _LEADING_LENGTH.match(name, at):
        length = int(match[1][:4])
        identifiers.append(name[match.end() : match.end() + length])
        at = match.end() + length
    return [identifier for identifier in identifiers if identifier]


class _Cursor:
    """A position in a mangled name: it reads single tokens and resolves references to earlier parts."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.substitutions: list[str] = []  # in the order in which `S_`, `S0_`, … count them
        self.parameters: list[str] = []  # template arguments of the function being parsed

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def accept(self, expected: str) -> bool:
        """Move behind `expected` if it comes next."""
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def expect(self, expected: str) -> None:
        if not self.accept(expected):
            raise _MangledError(f"no {expected!r} at {self.at}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def parse_identifier(self) -> str:
        """Parse an identifier that follows its length."""
        match = self.match(_LENGTH)
        length = int(match[0]) if match else 0
        name = self.text[self.at : self.at + length]
        if not length or len(name) < length:
            raise _MangledError(f"no identifier at {self.at}")
        self.at += length
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def parse_count(self) -> str:
        match = self.match(_COUNT)
        if not match:
            raise _MangledError(f"no count at {self.at}")
        return str(int(match[1]) + 2) if match[1] else "1"

    def parse_builtin_type(self) -> str | None:
        if match := self.match(_SIZED_FLOAT):
            bfloat = "bf16" if match[1] == "16" else "std::bfloat"
            return {"_": f"_Float{match[1]}", "b": bfloat, "x": "float"}[match[2]]
        if match := self.match(_SIZED_INTEGER):
            return f"_BitInt({match[1]})"
        if self.accept("u"):
            return self.parse_identifier()
        for width in (2, 1):
            if (code := self.peek(width)) in _BUILTIN_TYPES:
                self.at += width
                return _BUILTIN_TYPES[code]
        return None

    def add_substitution(self, text: str) -> str:
        """Remember a part for later references; bounded, because each reference can double a text."""
        if len(text) > _MAX_CHARS:
            raise _MangledError("too long")
        self.substitutions.append(text)
        return text

    def parse_substitution(self) -> str:
        if self.peek(2) in _STD_ABBREVIATIONS:
            self.at += 2
            return _STD_ABBREVIATIONS[self.text[self.at - 2 : self.at]]
        match = self.match(_SUBSTITUTION)
        index = (int(match[1], 36) + 1 if match[1] else 0) if match else len(self.substitutions)
        if index >= len(self.substitutions):
            raise _MangledError(f"refers to nothing at {self.at}")
        return self.substitutions[index]

    def parse_template_parameter(self) -> str:
        match = self.match(_TEMPLATE_PARAMETER)
        if not match:
            raise _MangledError(f"no template parameter at {self.at}")
        index = int(match[1], 36) + 1 if match[1] else 0
        return self.parameters[index] if index < len(self.parameters) else "auto"


class _Parser(_Cursor):
    """A parser of one mangled name: each `parse_` method returns a part and moves `at` behind it."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text, at)
        self.depth = 0
        self.functions: dict[str, tuple[str, str]] = {}  # function type → its result and its parameters

    def parse_encoding(self) -> str:
        """Parse a function within a name, with its parameters."""
        outer_parameters, self.parameters = self.parameters, []
        name, is_template = self.parse_name(is_function=True)
        if self.peek() in ("E", ""):
            self.parameters = outer_parameters
            return name
        if is_template:
            self.parse_type()  # the result
        parameters = []
        while self.peek() not in ("E", "", "."):
            parameters.append(self.parse_type())
        self.parameters = outer_parameters
        return f"{name}({', '.join(p for p in parameters if p != 'void')})"

    def parse_name(self, *, is_function: bool = False) -> tuple[str, bool]:
        """Parse a name; the flag says that it ends in template arguments."""
        if self.accept("N"):
            return self.parse_nested_name(is_function=is_function)
        if self.accept("Z"):
            return self.parse_local_name(), False
        if self.peek() == "S" and self.peek(2) != "St":
            name = self.parse_substitution()
        else:
            prefix = "std::" if self.accept("St") else ""
            name = prefix + self.parse_unqualified_name()
            if self.peek() == "I":
                self.add_substitution(name)
        if self.peek() == "I":
            return name + self.parse_template_arguments(is_function=is_function), True
        return name, False

    def parse_nested_name(self, *, is_function: bool) -> tuple[str, bool]:
        while self.peek() in ("r", "V", "K", "R", "O"):
            self.at += 1
        prefix, is_template = "", False
        while not self.accept("E"):
            if self.peek() == "I":
                prefix, is_template = prefix + self.parse_template_arguments(is_function=is_function), True
                self.add_substitution(prefix)
            elif self.peek() == "S" and self.peek(2) != "St":
                prefix, is_template = self.parse_substitution(), False
            elif self.peek() == "T":
                prefix, is_template = self.add_substitution(self.parse_template_parameter()), False
            elif self.accept("St"):
                prefix = "std"
            else:
                name = self.parse_unqualified_name()
                prefix, is_template = f"{prefix}::{name}" if prefix else name, False
                self.add_substitution(prefix)
        if self.substitutions and self.substitutions[-1] == prefix:
            self.substitutions.pop()  # the complete name counts only where it is used as a type
        return prefix, is_template

    def parse_local_name(self) -> str:
        function = self.parse_encoding()
        self.expect("E")
        if self.accept("s"):
            entity = "string literal"
        else:
            if self.accept("d"):
                self.match(_COUNT)
            entity = self.parse_name()[0]
        self.match(_DISCRIMINATOR)
        return f"{function}::{entity}"

    def parse_unqualified_name(self) -> str:
        self.accept("L")  # internal linkage
        if self.peek().isdigit():
            name = self.parse_identifier()
        elif self.accept("Ut"):
            name = "{unnamed type#" + self.parse_count() + "}"
        elif self.accept("Ul"):
            name = self.parse_lambda()
        elif self.match(_STRUCTOR):
            name = "{structor}"
        elif self.accept("cv"):
            name = "operator " + self.parse_type()
        elif self.peek(2) in _OPERATORS:
            name = "operator" + _OPERATORS[self.peek(2)]
            self.at += 2
        else:
            raise _MangledError(f"no name at {self.at}")
        while self.accept("B"):
            self.parse_identifier()
        return name

    def parse_lambda(self) -> str:
        parameters = self.parse_parameters()
        return "{lambda(" + parameters + ")#" + self.parse_count() + "}"

    def parse_template_arguments(self, *, is_function: bool = False) -> str:
        self.expect("I")
        arguments: list[str] = []
        if is_function:
            self.parameters = arguments
        while not self.accept("E"):
            arguments.append(self.parse_template_argument())
        return "<" + ", ".join(a for a in arguments if a) + ">"

    def parse_template_argument(self) -> str:
        if _PARAMETER_DECLARATION.match(self.text, self.at):
            self.skip_parameter_declaration()
        if self.accept("X"):
            expression = self.parse_expression()
            self.expect("E")
            return expression
        if self.peek() == "L":
            return self.parse_literal()
        if self.accept("J"):
            pack = []
            while not self.accept("E"):
                pack.append(self.parse_template_argument())
            return ", ".join(pack)
        return self.parse_type()

    def skip_parameter_declaration(self) -> None:
        """Move behind the declaration of a template parameter, which may precede its argument."""
        self.at += 1
        kind = self.peek()
        self.at += 1
        if kind == "n":
            self.parse_type()
        elif kind == "p":
            self.skip_parameter_declaration()
        elif kind == "k":
            self.parse_name()
        elif kind == "t":
            while not self.accept("E"):
                self.skip_parameter_declaration()

    def parse_literal(self) -> str:
        self.expect("L")
        if self.accept("_Z"):
            text = self.parse_encoding()
            self.expect("E")
            return text
        type_ = self.parse_type()
        match = self.match(_LITERAL_VALUE)
        value = (match[0] if match else "").replace("n", "-")
        self.expect("E")
        if type_ == "bool":
            return "true" if value == "1" else "false"
        return value + _LITERAL_SUFFIXES[type_] if type_ in _LITERAL_SUFFIXES else f"({type_}){value}"

    def parse_expression(self) -> str:
        if self.peek() == "L":
            return self.parse_literal()
        if self.peek() == "T":
            return self.parse_template_parameter()
        code = self.peek(2)
        if code not in _OPERATORS:
            raise _MangledError(f"no expression at {self.at}")
        self.at += 2
        operator, first = _OPERATORS[code], self.parse_expression()
        if code in _UNARY_OPERATORS:
            return f"{operator}({first})" if " " in first else operator + first
        return f"({first} {operator} {self.parse_expression()})"

    def parse_type(self) -> str:
        self.depth += 1
        if self.depth > _MAX_TYPE_DEPTH:
            raise _MangledError("too deep")
        try:
            return self.parse_builtin_type() or self.parse_compound_type()
        finally:
            self.depth -= 1

    def parse_compound_type(self) -> str:
        if qualifiers := self.match(_QUALIFIERS):
            inner = self.parse_type()
            return self.add_substitution(inner + " const" if "K" in qualifiers[0] else inner)
        first = self.peek()
        if first in _TYPE_SUFFIXES:
            self.at += 1
            inner = self.parse_type()
            if inner in self.functions:
                result, parameters = self.functions[inner]
                return self.add_substitution(f"{result} ({_TYPE_SUFFIXES[first]})({parameters})")
            return self.add_substitution(inner + _TYPE_SUFFIXES[first])
        if first == "F":
            return self.add_substitution(self.parse_function_type())
        if match := self.match(_DIMENSION):
            return self.add_substitution(f"{self.parse_type()} [{match[1]}]")
        if first == "M":
            self.at += 1
            owner = self.parse_type()
            return self.add_substitution(f"{self.parse_type()} {owner}::*")
        if first == "U":
            self.at += 1
            self.parse_identifier()  # a vendor's qualifier, such as an address space
            return self.add_substitution(self.parse_type())
        return self.parse_type_reference()

    def parse_function_type(self) -> str:
        self.expect("F")
        self.accept("Y")
        result = self.parse_type()
        parameters = self.parse_parameters()
        self.functions[f"{result} ({parameters})"] = result, parameters
        return f"{result} ({parameters})"

    def parse_parameters(self) -> str:
        types = []
        while not self.accept("E"):
            types.append(self.parse_type())
        return ", ".join(t for t in types if t != "void")

    def parse_type_reference(self) -> str:
        """Parse a type given by a name, a template parameter, an expression or an earlier part."""
        if self.accept("Dp"):
            return self.add_substitution(self.parse_type())
        if self.peek(2) in ("Dt", "DT"):
            self.at += 2
            expression = self.parse_expression()
            self.expect("E")
            return self.add_substitution(f"decltype({expression})")
        if self.peek() == "T" and self.peek(2) not in ("Ts", "Tu", "Te"):
            text = self.add_substitution(self.parse_template_parameter())
            return self.parse_template_of(text)
        if self.peek() == "T":  # a keyword before the name: struct, union or enum
            self.at += 2
        if self.peek() == "S" and self.peek(2) != "St":
            return self.parse_template_of(self.parse_substitution())
        return self.add_substitution(self.parse_name()[0])

    def parse_template_of(self, text: str) -> str:
        """Parse the template arguments of an earlier part, if it has any here."""
        return self.add_substitution(text + self.parse_template_arguments()) if self.peek() == "I" else text
