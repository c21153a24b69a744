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
        batch calls context count count_a count_b depth fastest files files_a files_b half_step late_calls
        layer median_count n_a n_b number prompt_tokens rank registers rows shared_bytes slow slowest step
        steps token tokens
    """,
    "boolean": """
        constant odd
    """,
    "string": """
        action advice axis basis block bound category cause class client columns confidence device evidence
        false_if finding function fused grid group host id key kind label lane launcher law law_a law_b
        instead layers lens level_a level_b line mark match message metric moved name name_a name_b next
        offsets op outcome outliers part path per phase relation request row scope section selection severity
        shape side switch table text track unit verdict what why
    """,
    "number": """
        byte_per_s bytes bytes_per_launch cliff cross cycles_a cycles_b deviation exponent first
        flop_per_s flop_ratio flops flops_per_launch intensity joules last max mean min p p_adjusted
        like_times per_step r2 r2_a r2_b scale share_first share_last slope_ratio suspicion
        time_a_ns time_b_ns
        ratio_times time_ratio tokens_per_s
    """,
    "array": """
        plain_trend trend
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
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SCALAR: Final = {"type": ["string", "number", "boolean", "null"]}


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
        "key": _build_list(
            _TEXT,
            "columns that together identify a row in every answer about the same file; empty if rows have "
            "only their order",
        ),
        "runs": _build_list({"$ref": "#/$defs/run"}, "every run of the input"),
        "import": _build_list({"$ref": "#/$defs/import"}, "import log of each run, in the same order"),
        "columns": _build_list(_TEXT, "the columns of the rows, in order"),
        "rows": {"type": "array", "items": {"type": "object"}},
        "notes": _build_list(_TEXT, "notes that are needed to interpret the rows"),
    }
    return {
        "type": "object",
        "properties": {**properties, **{part: {"type": "object"} for part in DIFF_ONLY_KEYS}},
        "required": list(properties),
        "if": {"properties": {"view": {"not": {"enum": list(FREE_COLUMN_VIEWS)}}}},
        "then": {"properties": {"rows": {"items": {"$ref": "#/$defs/row"}}}},
    }


def _build_row_schema() -> dict[str, Any]:
    meanings = {name: meaning for term, meaning in read_glossary() for name in term.lower().split(", ")}
    columns = {}
    for kind, names in COLUMNS_BY_TYPE.items():
        for column in names.split():
            meaning = meanings.get(units.format_heading(column).lower())
            columns[column] = _build_value_schema(kind) | ({"description": meaning} if meaning else {})
    return {
        "type": "object",
        "properties": columns,
        "patternProperties": {p: _build_value_schema(kind) for p, kind in TYPES_BY_PATTERN.items()},
        "additionalProperties": _SCALAR,
    }


def _build_value_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a value that may be null."""
    items = {"items": {"type": ["number", "null"]}} if kind == "array" else {}
    return {"type": [kind, "null"], **items}


def _build_list(items: Mapping[str, Any], about: str) -> dict[str, Any]:
    return {"type": "array", "items": dict(items), "description": about}


def _build_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all these properties."""
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _build_run_schema() -> dict[str, Any]:
    return _build_object(
        {
            **dict.fromkeys(("name", "source", "format"), _TEXT),
            **dict.fromkeys(("model", "device", "dtype", "quant", "weights", "batch"), _SCALAR),
            "events": _COUNT,
            "total_ns": {"type": ["integer", "null"]},
            "selected": {"type": "boolean", "description": "whether the rows are about this run"},
        }
    )


def _build_import_schema() -> dict[str, Any]:
    notice = _build_object(
        {
            "id": _TEXT,
            "severity": {"enum": ["notice", "data_loss", "error"]},
            "count": {"type": "integer"},
            "message": _TEXT,
            "offsets": {"type": "array", "items": {"type": "integer"}},
        }
    )
    return _build_object(
        {
            **dict.fromkeys(("source", "format"), _TEXT),
            **dict.fromkeys(("read", "kept", "repaired", "dropped"), _COUNT),
            "notices": _build_list(notice, "notices that affect how to read the numbers"),
        }
    )


def _build_error_schema() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    code = {"type": "integer", "description": "the exit code"}
    error = {"code": code, "what": _TEXT, "where": text, "why": text, "todo": text}
    return _build_object({"schema": {"const": SCHEMA_NUMBER}, "error": _build_object(error)})
