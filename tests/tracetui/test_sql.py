"""SQL over a run: right by recomputation, read-only, one sentence for what has no answer."""

import csv
import io
import json
import time
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UsageError
from capture.load_runs import load
from capture.native.schema import COLUMNS
from tests.tracetui.in_process import tracetui
from tracetui import sql
from tracetui.samples import find_sample
from tracetui.views import VIEWS

RUNS = load(find_sample("decode"), cache=False)
BOTH = [*RUNS, *load(find_sample("slowed"), cache=False)]


def test_sums_by_op_equal_a_plain_loop() -> None:
    totals: Counter[str] = Counter()
    for kind, op, dur in RUNS[0].events.select("kind", "op", "dur").iter_rows():
        if kind == "kernel" and op is not None:
            totals[op] += dur
    rows = sql.execute_query(
        RUNS, 0, "SELECT op, sum(dur) AS ns FROM events WHERE kind = 'kernel' AND op LIKE '%' GROUP BY op"
    )
    assert dict(rows.iter_rows()) == totals and len(totals) > 5


def test_a_view_is_a_table_and_joins_the_events() -> None:
    text = (
        "SELECT k.name, k.total_ns, e.ns FROM kernels k JOIN "
        "(SELECT name, sum(dur) AS ns FROM events WHERE kind = 'kernel' AND lens = 'wall' GROUP BY name) e "
        "ON k.name = e.name"
    )
    rows = sql.execute_query(RUNS, 0, text)
    assert rows.height > 5 and (rows["total_ns"] == rows["ns"]).all()


def test_every_view_of_one_run_is_listed_and_two_runs_add_those_of_two() -> None:
    alone, both = (set(sql.build_tables(runs, 0)) for runs in (RUNS, BOTH))
    assert alone >= {"events", "runs", "kernels", "fix"} and "diff" not in alone
    assert both - alone >= {"diff", "waterfall", "compare"} and len(both) == len(VIEWS) + 2
    listed = sql.describe_tables(RUNS, 0)
    meanings = dict(listed.filter(table="events").select("column", "meaning").iter_rows())
    assert meanings.items() <= {c.name: c.meaning for c in COLUMNS}.items() and "dur" in meanings
    assert set(listed["table"]) <= alone


def test_the_chosen_run_of_several_is_asked() -> None:
    count = "SELECT count(*) AS n FROM events"
    assert [sql.execute_query(BOTH, at, count).item() for at in (0, 1)] == [r.events.height for r in BOTH]
    assert sql.execute_query(BOTH, 1, "SELECT name FROM runs WHERE selected")["name"].to_list() == [
        BOTH[1].name
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DROP TABLE events", "is not a SELECT"),
        ("CREATE TABLE x AS SELECT * FROM events", "is not a SELECT"),
        ("", "is not a SELECT"),
        ("SELECT nope FROM events", 'unable to find column "nope"'),
        ("SELECT * FROM nothing_here", "relation 'nothing_here' was not found"),
        ("SELECT 1; SELECT 2", "failed"),
        ("SELECT count( FROM events", "failed"),
    ],
)
def test_what_has_no_answer_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        sql.execute_query(RUNS, 0, text)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{}')",
        "SELECT * FROM READ_CSV ('{}')",
        "SELECT * FROM \"read_csv\"('{}')",
        "SELECT * FROM read_csv/* a */('{}')",
        "SELECT * FROM read_parquet('{}')",
        # a quote elsewhere hides no reader
        "SELECT 1 AS \"it's\", * FROM read_csv('{}') AS \"it's\"",
        "SELECT * -- it's\n FROM read_csv('{}') -- '",
        "SELECT * FROM /* ' */ read_csv('{}') /* ' */",
    ],
)
def test_no_query_opens_a_file(tmp_path: Path, query: str) -> None:
    """polars' own SQL would read it."""
    file = tmp_path / "secret.csv"
    file.write_text("word\nsecret\n")
    with pytest.raises(UsageError, match="would open a file"):
        sql.execute_query(RUNS, 0, query.format(file))


def test_the_command_prints_every_format_and_lists_the_tables() -> None:
    asked = "SELECT name, count FROM kernels ORDER BY name"
    answers = {
        f: tracetui("query", "sample:decode", asked, "--format", f) for f in ("json", "csv", "table", "md")
    }
    assert all(result.returncode == 0 for result in answers.values())
    rows = json.loads(answers["json"].stdout)["rows"]
    read = [(r["name"], int(r["count"])) for r in csv.DictReader(io.StringIO(answers["csv"].stdout))]
    assert [(r["name"], r["count"]) for r in rows] == read == sorted(read)
    assert all(r["name"] in answers["table"].stdout and r["name"] in answers["md"].stdout for r in rows)
    listed = tracetui("query", "sample:decode")
    assert listed.returncode == 0 and "start in ns" in listed.stdout
    assert (
        len(tracetui("query", "sample:decode", asked, "--limit", "2", "--format", "csv").stdout.splitlines())
        == 3
    )


def test_a_kernel_called_like_a_reader_can_be_asked_for() -> None:
    rows = sql.execute_query(RUNS, 0, "SELECT name FROM events WHERE name = 'read_cache_kernel'")
    assert rows.height == 0


def test_control_characters_of_a_query_are_not_printed(tmp_path: Path) -> None:
    rows = sql.execute_query(RUNS, 0, "SELECT '\x1b[2J' AS \"\x1b]0;Q\x07\" FROM events LIMIT 1")
    assert "\x1b" not in repr(rows.to_dicts()).encode().decode("unicode_escape")


@pytest.mark.parametrize(
    ("seconds", "size", "said"), [(0, 8 << 30, "takes more than"), (60, -(1 << 40), "memory")]
)
def test_a_query_without_an_end_is_given_up(
    seconds: int, size: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MAX_QUERY_SECONDS", seconds)
    monkeypatch.setattr(sql, "MAX_QUERY_BYTES", size)
    with pytest.raises(UsageError, match=said):
        sql._run_limited(lambda: (time.sleep(0.5), pl.DataFrame())[1])
