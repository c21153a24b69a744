"""The published JSON schema of `--format json`: reports of every view, queries, errors."""

from collections.abc import Mapping
from typing import Any, Final

from tracetui import units
from tracetui.guides import read_glossary
from tracetui.report_formats import SCHEMA_NUMBER
from tracetui.views import load_views

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# views whose columns are chosen by the source or the user
FREE_COLUMN_VIEWS: Final = ("query", "tables", "sections")
DIFF_ONLY_KEYS: Final = ("comparable", "decision")  # keys of the document that only a diff has

# Columns by the type of their values; the patterns are for columns not listed by name.
COLUMNS_BY_TYPE: Final[Mapping[str, str]] = {
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
TYPES_BY_PATTERN: Final = {
    r"^(?!time_[ab]_ns$).*_ns$": "integer",
    r"^(first|last|min|max|mean)_bytes$": "integer",
    r"_ns_per_1k$": "number",
    r"(^|_)share$": "number",
    r"_pct$": "number",
    r"^g(b|flop)_per_s$": "number",
    r"^(d|p|u|z)_(log_)?(beta|mu)$|^(beta|mu)_[ab]$": "number",
}


def build_json_schema() -> dict[str, Any]:
    """Build the schema of every document that `--format json` prints."""
    return {
        "$schema": DIALECT,
        "title": f"Output of tracetui --format json, schema {SCHEMA_NUMBER}",
        "description": "A column is never renamed or changed in type within one schema number; columns, keys "
        "of the document and views may be added. Unknown values are null.",
        "oneOf": [{"$ref": "#/$defs/report"}, {"$ref": "#/$defs/error"}],
        "$defs": {
            "report": _build_report_schema(),
            "error": _build_error_schema(),
            "run": _build_run_schema(),
            "import": _build_import_schema(),
            "row": _build_row_schema(),
        },
    }


def _build_report_schema() -> dict[str, Any]:
    names = [*(view.name for view in load_views()), "query"]
    properties = {
        "schema": {"const": SCHEMA_NUMBER},
        "view": {"enum": names},
        "key": _build_string_list(
            "columns that together identify a row in every answer about the same file; empty if rows have "
            "only their order"
        ),
        "runs": _build_list({"$ref": "#/$defs/run"}, "every run of the input"),
        "import": _build_list({"$ref": "#/$defs/import"}, "import log of each run, in the same order"),
        "columns": _build_string_list("the columns of the rows, in order"),
        "rows": {"type": "array", "items": {"type": "object"}},
        "notes": _build_string_list("notes that are needed to interpret the rows"),
    }
    of_views = {"properties": {"rows": {"items": {"$ref": "#/$defs/row"}}}}
    return {
        "type": "object",
        "properties": {**properties, **{part: {"type": "object"} for part in DIFF_ONLY_KEYS}},
        "required": list(properties),
        "if": {"properties": {"view": {"not": {"enum": list(FREE_COLUMN_VIEWS)}}}},
        "then": of_views,
    }


def _build_row_schema() -> dict[str, Any]:
    meanings = {name: meaning for term, meaning in read_glossary() for name in term.lower().split(", ")}
    columns = {
        column: _build_value_schema(kind)
        | _build_description(meanings.get(units.format_heading(column).lower()))
        for kind, names in COLUMNS_BY_TYPE.items()
        for column in names.split()
    }
    patterns = {pattern: _build_value_schema(kind) for pattern, kind in TYPES_BY_PATTERN.items()}
    anything = {"type": ["string", "number", "boolean", "null"]}
    return {
        "type": "object",
        "properties": columns,
        "patternProperties": patterns,
        "additionalProperties": anything,
    }


def _build_value_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a value that may be null."""
    items = {"items": {"type": ["number", "null"]}} if kind == "array" else {}
    return {"type": [kind, "null"], **items}


def _build_description(meaning: str | None) -> dict[str, str]:
    return {"description": meaning} if meaning else {}


def _build_string_list(about: str) -> dict[str, Any]:
    return _build_list({"type": "string"}, about)


def _build_list(items: Mapping[str, Any], about: str) -> dict[str, Any]:
    return {"type": "array", "items": dict(items), "description": about}


def _build_run_schema() -> dict[str, Any]:
    texts = ("name", "source", "format")
    metadata = ("model", "device", "dtype", "quant", "weights", "batch")
    return {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in texts},
            **{name: {"type": ["string", "number", "boolean", "null"]} for name in metadata},
            "events": {"type": "integer", "minimum": 0},
            "total_ns": {"type": ["integer", "null"]},
            "selected": {"type": "boolean", "description": "whether the rows are about this run"},
        },
        "required": [*texts, *metadata, "events", "total_ns", "selected"],
    }


def _build_import_schema() -> dict[str, Any]:
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
            "notices": _build_list(notice, "notices that affect how to read the numbers"),
        },
        "required": ["source", "format", *counts, "notices"],
    }


def _build_error_schema() -> dict[str, Any]:
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
        "properties": {"schema": {"const": SCHEMA_NUMBER}, "error": error},
        "required": ["schema", "error"],
    }
