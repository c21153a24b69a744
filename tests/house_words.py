"""The rules of the house about words: names of functions, variables and classes, docstrings, constants."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.house import Checkout, Function

VERBS_FIRST: Final = 0.95  # share of the functions

# Words that name no thing: none may be the whole name of a variable, parameter, function or class.
EMPTY_WORDS: Final = frozenset(
    (
        *("told", "known", "found", "kept", "asked", "stated", "said", "shown", "given", "wanted", "taken"),
        *("seen", "judged", "beside", "alone", "apart", "whole", "own", "usual", "much"),
    )
)
# Entry points whose names a registry fixes, and first words of predicates and conversions.
FIXED_NAMES: Final = frozenset(
    ["answer", "draw", "options", "run", "sniff", "load", "reference", "launch", "cases", "main"]
)
PREDICATES: Final = ("is", "has", "can", "should", "needs", "are", "does", "with", "as", "to", "from")

# First words of functions. A new one is added to the file when no verb in it fits.
VERBS: Final = frozenset((Path(__file__).parent / "verbs.txt").read_text().split())

# openings that describe a value by a relative clause instead of naming it
RIDDLE: Final = re.compile(r"Return (what|where|which|how|by|when|who)\b|Tell |Say ")


def find_unclear_function_names(checkout: Checkout) -> list[str]:
    """Return the functions whose names do not begin with a verb, if VERBS_FIRST of all is missed.

    Properties, predicates, fixed entry points, accessors of one field and polars expressions pass.
    """
    unclear = [(m, node) for m, node in checkout.functions if not has_clear_name(node)]
    share = 1 - len(unclear) / max(1, len(checkout.functions))
    if share >= VERBS_FIRST:
        return []
    return [
        f"{share:.1%} begin with a verb",
        *(f"{m.place}:{node.lineno} {node.name}" for m, node in unclear),
    ]


def has_clear_name(node: Function) -> bool:
    """Return whether a function's name begins with a verb, or is one of the kinds that need none."""
    name = node.name.strip("_")
    first = name.split("_")[0]
    return (
        node.name.startswith("__")
        or name in FIXED_NAMES
        or first in VERBS
        or first in PREDICATES
        or _is_property_or_kernel(node)
        or _returns_expression(node)
        or _is_accessor(node)
    )


def _is_property_or_kernel(node: Function) -> bool:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(
        d.endswith(("property", ".setter", "overload", "triton.jit")) or d.startswith("on(")
        for d in decorators
    )


def _returns_expression(node: Function) -> bool:
    """Return whether the function builds polars expressions, which are named after their column."""
    return node.returns is not None and "pl.Expr" in ast.unparse(node.returns)


def _is_accessor(node: Function) -> bool:
    """Return whether the body is a single return of a name, a field, an item or a constant."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    simple = ast.Attribute | ast.Subscript | ast.Constant | ast.Name
    return len(body) == 1 and isinstance(body[0], ast.Return) and isinstance(body[0].value, simple)


def find_empty_words(checkout: Checkout) -> list[str]:
    """Return each variable, parameter, function or class whose whole name is one of EMPTY_WORDS."""
    out = []
    for module in checkout.modules:
        for node in module.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, Function | ast.ClassDef):
                name = node.name
            else:
                continue
            if name.strip("_").lower() in EMPTY_WORDS:
                out.append(f"{module.place}:{node.lineno} {name}")
    return out


def find_shared_class_names(checkout: Checkout) -> list[str]:
    """Return each public class name that several modules define."""
    places = defaultdict[str, list[str]](list)
    for module in checkout.modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return [f"{name}: {', '.join(modules)}" for name, modules in places.items() if len(modules) > 1]


def find_unclear_docstrings(checkout: Checkout) -> list[str]:
    """Return each public function without a docstring, and each docstring that opens with a riddle."""
    out = []
    for module, node in checkout.functions:
        docstring = ast.get_docstring(node) or ""
        if not docstring and node in module.tree.body and _needs_docstring(node):
            out.append(f"{module.place}:{node.lineno} {node.name} has no docstring")
        elif RIDDLE.match(docstring):
            out.append(f"{module.place}:{node.lineno} {node.name}: {docstring[:60]}")
    return out


def _needs_docstring(node: Function) -> bool:
    exempt = node.name in FIXED_NAMES or node.name.startswith("_") or _is_accessor(node)
    return not exempt and not _is_property_or_kernel(node)


def find_scattered_constants(checkout: Checkout) -> list[str]:
    """Return each numeric constant of tracetui/compare outside its one module of parameters."""
    out = []
    for module in checkout.modules:
        if not module.place.startswith("tracetui/compare/") or module.path.name == "params.py":
            continue
        for node in module.tree.body:
            if isinstance(node, ast.AnnAssign | ast.Assign) and _is_number(node.value):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                out.append(f"{module.place}:{node.lineno} {ast.unparse(target)}")
    return out


def _is_number(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
    return False
