"""An account that was saved beside rows, and damaged: it is refused, never believed."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.export_runs import export
from capture.load_runs import load
from capture.native.saved_tables import PARQUET_KEY
from tests.conftest import FIXTURES

DAMAGED = [{"repaired": -(1 << 63)}, {"read": -1}, {"dropped": 7}]  # of six that were read


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_parquet_file_whose_account_does_not_add_up_is_damaged(
    tmp_path: Path, damage: dict[str, int]
) -> None:
    path = tmp_path / "p.parquet"
    export(load(FIXTURES / "native" / "columns.jsonl", cache=False), path)
    about = json.loads(pl.read_parquet_metadata(path)[PARQUET_KEY])
    about["log"] |= damage
    pl.read_parquet(path).write_parquet(path, metadata={PARQUET_KEY: json.dumps(about)})
    with pytest.raises(UnreadableError, match="damaged"):
        load(path, cache=False)


def test_an_account_of_nothing_has_room_for_what_is_lost_since(tmp_path: Path) -> None:
    """Of an earlier import nothing was read, it says; a line of the file itself cannot be read."""
    log = {"source": "a", "format": "native", "read": 0, "repaired": 0, "dropped": 0, "notices": []}
    lines = [
        {"kind": "log", "log": log},
        {"kind": "kernel", "name": "k", "dur": 2},
        {"kind": "kernel", "dur": "?"},
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run,) = load(path, cache=False)
    assert (run.events["dur"].to_list(), run.log.read, run.log.dropped, run.log.retained) == ([2], 1, 1, 0)
    export([run], tmp_path / "again.jsonl")
    assert load(tmp_path / "again.jsonl", cache=False)[0].log == run.log
