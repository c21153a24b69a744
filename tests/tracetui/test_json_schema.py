"""The published schema: every report of every fixture keeps to it, and a row is known by its key."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from capture.run import Run
from tests.capture.test_fixtures import of_each_file, runs_of
from tests.commands import Command, prepare
from tests.tracetui.in_process import tracetui
from tracetui.json_schema import COLUMNS_BY_TYPE, FREE_COLUMN_VIEWS, TYPES_BY_PATTERN
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import View, load_views

ONLY_ORDER = {
    "findings",
    "sections",
    "timeline",
    "log",
    "detail",
    "pair",
}  # whose rows are known by their place alone
RUNS_AS_COLUMNS = "compare"
DRAWN = {"bar"}  # a column of a screen that stands in no row


@cache
def validator() -> Draft202012Validator:
    published = json.loads(tracetui("schema").stdout)
    Draft202012Validator.check_schema(published)
    return Draft202012Validator(published)


def reports(path: Path) -> list[dict[str, Any]]:
    """Every view of a fixture as a program reads it; a view of two compares the first run with the last."""
    runs = runs_of(path)
    return [json.loads(format_report(v, asked(v, runs), Look(full_names=True), "json")) for v in load_views()]


def asked(v: View, runs: list[Run]) -> list[Run]:
    return runs[:1] if v.run_count == 1 else [runs[0], runs[-1]]


def is_in_schema(column: str) -> bool:
    """Whether the schema has the type of a column."""
    listed = {name for names in COLUMNS_BY_TYPE.values() for name in names.split()}
    return column in listed or any(re.search(pattern, column) for pattern in TYPES_BY_PATTERN)


@pytest.mark.corpus
@of_each_file
def test_every_report_keeps_to_the_schema(path: Path) -> None:
    for document in reports(path):
        validator().validate(document)
        if document["view"] not in (*FREE_COLUMN_VIEWS, RUNS_AS_COLUMNS):
            assert [c for c in document["columns"] if not is_in_schema(c)] == [], document["view"]


@pytest.mark.corpus
@of_each_file
def test_a_row_is_known_by_its_key(path: Path) -> None:
    for document in reports(path):
        key, rows = document["key"], document["rows"]
        assert set(key) <= set(document["columns"])
        if key:
            known = [tuple(row[column] for column in key) for row in rows]
            assert len(known) == len(set(known)), (document["view"], key)
        elif rows:
            assert document["view"] in ONLY_ORDER | set(FREE_COLUMN_VIEWS), document["view"]


def test_a_column_has_one_type() -> None:
    names = [name for group in COLUMNS_BY_TYPE.values() for name in group.split()]
    assert len(names) == len(set(names))


@pytest.mark.corpus
@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": 2},
        {"view": "kernls"},
        {"key": None},
        {"rows": [{"total_ns": 1.5}]},
        {"rows": [{"share": "much"}]},
        {"rows": [{"name": 7}]},
        {"rows": [{"trend": "up"}]},
        {"notes": [1]},
        {"import": [{}]},
    ],
    ids=str,
)
def test_what_breaks_the_promise_is_refused(wrong: dict[str, Any]) -> None:
    right = json.loads(tracetui("report", "kernels", "sample:decode", "--format", "json").stdout)
    validator().validate(right)
    with pytest.raises(ValidationError):
        validator().validate(right | wrong)


@pytest.mark.corpus
@pytest.mark.parametrize(
    "words",
    [
        ("diff", "sample:decode", "sample:slowed"),
        ("compare", "sample:decode", "sample:slowed"),
        ("query", "sample:decode", "SELECT avg(dur) AS mean_ns, 'x' AS share FROM events"),
        ("report", "kernels", "sample:decode", "--group-by", "phase"),
        ("report", "fix", "sample:decode", "--what-if", "attn.core=-30%"),
        ("report", "detail", "sample:decode", "--focus", "name=attention"),
        ("report", "pair", "sample:decode", "sample:slowed", "--focus", "name=attention"),
        ("report", "kernels", "no-such-file"),
        ("report", "kernels", "sample:decode", "--sort", "nope"),
    ],
    ids=" ".join,
)
def test_what_commands_print_keeps_to_the_schema(words: tuple[str, ...]) -> None:
    document = json.loads(tracetui(*words, "--format", "json").stdout)
    validator().validate(document)
    assert ("error" in document) == (words[-1] in ("no-such-file", "nope"))


def test_every_column_that_a_view_ranks_is_in_schema() -> None:
    assert {column for v in load_views() for column in v.columns if not is_in_schema(column)} == DRAWN


def test_ranks_keep_to_the_schema(tmp_path: Path) -> None:
    prepare(Command("", "tracetui report ranks run-folder"), tmp_path)
    for name in ("ranks", "rankmap"):
        words = ("report", name, tmp_path / "run-folder", "--merge", "--format", "json")
        document = json.loads(tracetui(*words).stdout)
        validator().validate(document)
        assert document["rows"] and all(is_in_schema(column) for column in document["columns"])
