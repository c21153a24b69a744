"""The published JSON schema of what `--format json` prints: reports of every view, queries, errors."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tracetui import units
from tracetui.guides import glossary
from tracetui.report import SCHEMA
from tracetui.views import views

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FREE: Final = ("query", "tables", "sections")  # views whose columns are those of the source or of a person
PHASES_OF_A_CHANGE: Final = ("comparable", "decision")  # that only a diff has

# Columns by what their values are. Names come first; a pattern speaks for what no name says.
NAMED: Final[Mapping[str, str]] = {
    "integer": """
        batch context count count_a count_b depth fastest files files_a files_b half_step layer n_a
        n_b rank registers rows shared_bytes slowest step steps tokens
    """,
    "boolean": """
        constant odd
    """,
    "string": """
        advice axis basis block bound category cause class columns confidence device evidence
        false_if finding function fused grid group host id key kind label lane launcher law law_a law_b
        layers lens level_a level_b line mark match message metric moved name name_a name_b next
        offsets op outliers part path per phase relation row scope section selection severity shape
        side switch table text track unit verdict what
    """,
    "number": """
        byte_per_s bytes bytes_per_launch cliff cross cycles_a cycles_b deviation exponent first
        flop_per_s flop_ratio flops flops_per_launch intensity last max mean min p p_adjusted
        per_step r2 r2_a r2_b scale share_first share_last slope_ratio suspicion time_a_ns time_b_ns
        time_ratio tokens_per_s
    """,
    "array": """
        trend
    """,
}
PATTERNS: Final = {
    r"^(?!time_[ab]_ns$).*_ns$": "integer",
    r"^(first|last|min|max|mean)_bytes$": "integer",
    r"_ns_per_1k$": "number",
    r"(^|_)share$": "number",
    r"_pct$": "number",
    r"^g(b|flop)_per_s$": "number",
    r"^(d|p|u|z)_(log_)?(beta|mu)$|^(beta|mu)_[ab]$": "number",
}


def schema() -> dict[str, Any]:
    """Return the schema of every document that is printed with --format json."""
    return {
        "$schema": DIALECT,
        "title": f"What tracetui prints with --format json, schema {SCHEMA}",
        "description": "A column is never renamed or changed in type within one schema number; columns, keys "
        "of the document and views may be added. What is not known is null.",
        "oneOf": [{"$ref": "#/$defs/report"}, {"$ref": "#/$defs/error"}],
        "$defs": {
            "report": _report(),
            "error": _error(),
            "run": _run(),
            "import": _import(),
            "row": _row(),
        },
    }


def is_told(column: str) -> bool:
    """Tell whether the schema says what the values of a column are."""
    return any(column in names.split() for names in NAMED.values()) or any(
        re.search(p, column) for p in PATTERNS
    )


def _report() -> dict[str, Any]:
    names = [*(view.name for view in views()), "query"]
    told = {
        "schema": {"const": SCHEMA},
        "view": {"enum": names},
        "key": _strings(
            "columns whose values together tell a row from every other, in every answer about the same file; "
            "none where rows have only their order"
        ),
        "runs": _list({"$ref": "#/$defs/run"}, "every run of the input"),
        "import": _list({"$ref": "#/$defs/import"}, "what was read of each run, in the same order"),
        "columns": _strings("the columns of the rows, in order"),
        "rows": {"type": "array", "items": {"type": "object"}},
        "notes": _strings("sentences without which the rows would mislead"),
    }
    of_views = {"properties": {"rows": {"items": {"$ref": "#/$defs/row"}}}}
    return {
        "type": "object",
        "properties": {**told, **{part: {"type": "object"} for part in PHASES_OF_A_CHANGE}},
        "required": list(told),
        "if": {"properties": {"view": {"not": {"enum": list(FREE)}}}},
        "then": of_views,
    }


def _row() -> dict[str, Any]:
    meanings = {name: meaning for term, meaning in glossary() for name in term.lower().split(", ")}
    columns = {
        column: _value(kind) | _described(meanings.get(units.heading(column).lower()))
        for kind, names in NAMED.items()
        for column in names.split()
    }
    patterns = {pattern: _value(kind) for pattern, kind in PATTERNS.items()}
    anything = {"type": ["string", "number", "boolean", "null"]}
    return {
        "type": "object",
        "properties": columns,
        "patternProperties": patterns,
        "additionalProperties": anything,
    }


def _value(kind: str) -> dict[str, Any]:
    """Return the schema of a value that may be unknown."""
    items = {"items": {"type": ["number", "null"]}} if kind == "array" else {}
    return {"type": [kind, "null"], **items}


def _described(meaning: str | None) -> dict[str, str]:
    return {"description": meaning} if meaning else {}


def _strings(about: str) -> dict[str, Any]:
    return _list({"type": "string"}, about)


def _list(items: Mapping[str, Any], about: str) -> dict[str, Any]:
    return {"type": "array", "items": dict(items), "description": about}


def _run() -> dict[str, Any]:
    texts = ("name", "source", "format")
    metadata = ("model", "device", "dtype", "quant", "weights", "batch")
    return {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in texts},
            **{name: {"type": ["string", "number", "boolean", "null"]} for name in metadata},
            "events": {"type": "integer", "minimum": 0},
            "total_ns": {"type": ["integer", "null"]},
            "selected": {"type": "boolean", "description": "whether the rows speak of this run"},
        },
        "required": [*texts, *metadata, "events", "total_ns", "selected"],
    }


def _import() -> dict[str, Any]:
    counts = ("read", "kept", "repaired", "dropped")
    notice = {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "severity": {"enum": ["notice", "data_loss", "error"]},
            "count": {"type": "integer"},
            "message": {"type": "string"},
            "offsets": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["id", "severity", "count", "message", "offsets"],
    }
    return {
        "type": "object",
        "properties": {
            "source": {"type": "string"},
            "format": {"type": "string"},
            **{name: {"type": "integer", "minimum": 0} for name in counts},
            "notices": _list(notice, "what whoever reads the numbers should know"),
        },
        "required": ["source", "format", *counts, "notices"],
    }


def _error() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    error = {
        "type": "object",
        "properties": {
            "code": {"type": "integer", "description": "the exit code"},
            "what": {"type": "string"},
            "where": text,
            "why": text,
            "todo": text,
        },
        "required": ["code", "what", "where", "why", "todo"],
    }
    return {
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, "error": error},
        "required": ["schema", "error"],
    }
