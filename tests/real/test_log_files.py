"""The parts of a log as DuckDB and pandas read them: the columns of the guide, and what it says they hold."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from capture.export_runs import export
from tests.real import find_program
from tests.tracetui.in_process import tracetui
from tests.tracetui.runs import decode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
GUIDE = Path(__file__).parents[2] / "tracetui" / "guides" / "history.md"
# by a SQL engine and by a data frame: the types of the columns, the steps, and the query of the guide
DUCKDB = """
import duckdb, json, sys
files, query = sys.argv[1], sys.argv[2]
types = {row[0]: row[1] for row in duckdb.sql(f"DESCRIBE SELECT * FROM '{files}'").fetchall()}
kinds = dict(duckdb.sql(f"SELECT kind, count(*) FROM '{files}' GROUP BY kind").fetchall())
walls = [row[0] for row in duckdb.sql(
    f"SELECT total_ns FROM '{files}' WHERE kind = 'step' AND phase = 'decode' ORDER BY run, step").fetchall()]
print(json.dumps({"types": types, "kinds": kinds, "walls": walls,
                  "medians": [float(row[2]) for row in duckdb.sql(query).fetchall()]}))
"""
PANDAS = """
import glob, json, pandas, sys
table = pandas.concat(pandas.read_parquet(file) for file in sorted(glob.glob(sys.argv[1])))
steps = table[(table.kind == "step") & (table.phase == "decode")].sort_values(["run", "step"])
rows = table[(table.kind == "row") & (table.name == "ffn_down")].sort_values("started")
print(json.dumps({"types": {name: str(t) for name, t in table.dtypes.items()},
                  "kinds": table.kind.value_counts().to_dict(), "walls": steps.total_ns.astype(int).tolist(),
                  "medians": rows.median_ns.tolist()}))
"""


@pytest.mark.parametrize("program", [DUCKDB, PANDAS], ids=["duckdb", "pandas"])
def test_parts_are_read_by_others_as_the_guide_says(program: str, tmp_path: Path) -> None:
    python, log = find_program("history"), tmp_path / "nightly"
    runs = [decode(steps=12), decode(steps=20)]
    for number, run in enumerate(runs):
        export([run], tmp_path / f"{number}.jsonl", overwrite=True)
        assert tracetui("log", "add", tmp_path / f"{number}.jsonl", "--to", log).returncode == 0
    query = re.search(r'duckdb -c "(.*)"', GUIDE.read_text())
    assert query
    words = [str(log / "*.parquet"), query[1].replace("nightly/", f"{log}/")]
    done = subprocess.run([python, "-c", program, *words], capture_output=True, text=True, check=True)
    read = json.loads(done.stdout)
    columns = "schema run started model batch device versions options commit tags kind phase name median_ns"
    assert {*columns.split(), "p05_ns", "p95_ns", "shape", "bytes", "flops", "value", "unit"} <= {
        *read["types"]
    }
    assert read["types"]["started"].startswith(("TIMESTAMP", "datetime64"))
    assert read["types"]["median_ns"].lower() in ("double", "float64")
    walls = [run.events.filter(kind="step", phase="decode").sort("step")["dur"].to_list() for run in runs]
    assert (
        sorted(read["walls"]) == sorted(ns for wall in walls for ns in wall)
        and read["kinds"]["step"] == 13 + 21
    )
    # 4 layers of 400 µs in a step of 2 tokens, as `decode` makes them, in each phase that has the row
    assert len(read["medians"]) == read["kinds"]["row"] // 3
    assert np.isclose(read["medians"], 800_000).sum() == 2
