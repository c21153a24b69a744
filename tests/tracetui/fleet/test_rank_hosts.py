"""Ranks on their hosts: told by names or by a table, and a host whose ranks are all slow is found."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.native.schema import seal_record
from tests.tracetui.fleet.made import durations
from tracetui import cli
from tracetui.fleet.rank_hosts import with_hosts

STEPS, OF_A_HOST = 30, 4


def hosts_of_four(folder: Path, names: str) -> list[str]:
    """Files of twelve ranks on three hosts; every rank of the second takes half as long again in ffn_down."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for rank in range(12):
        host = rank // OF_A_HOST
        rows = [{"kind": "kernel", "phase": "decode", "lens": "gpu", **row} for row in durations(99, STEPS)]
        clock = 0
        for row in rows:
            row["dur"] += rank
            row["dur"] = row["dur"] * 3 // 2 if (host, row["name"]) == (1, "ffn_down") else row["dur"]
            row["t"] = clock
            clock += row["dur"]
        head = {"kind": "run", "schema": 1, "id": f"r{rank}", "name": "job", "meta": {"rank": rank}}
        path = folder / names.format(rank=rank, host=host)
        path.write_bytes(b"".join(map(seal_record, [head, *rows])))
        files.append(str(path))
    return files


def test_a_slow_host_is_named_with_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts_of_four(tmp_path, "node{host}-rank{rank}.jsonl")
    assert cli.main(["report", "ranks", str(tmp_path), "--on", "local:1", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["rank"]: row["host"] for row in answer["rows"]} == {n: f"node{n // 4}" for n in range(12)}
    late = [note for note in answer["notes"] if note.startswith("straggler: host")]
    assert len(late) == 1 and late[0].startswith("straggler: host node1 is late")
    assert "most of it in mlp.down" in late[0] and f"slowest in {STEPS} of {STEPS} steps" in late[0]


def test_a_table_says_where_ranks_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts_of_four(tmp_path / "traces", "r{rank}.jsonl")
    lines = [f"{rank}, big{rank // 4}, leaf{rank // 8}  # comment" for rank in range(12)]
    (tmp_path / "hosts.txt").write_text("# rank, host, switch\n\n" + "\n".join(lines))
    words = ["report", "rankmap", str(tmp_path / "traces"), "--on", "local:1", "--format", "json"]
    assert cli.main([*words, "--hosts", str(tmp_path / "hosts.txt")]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {(r["rank"], r["host"], r["switch"]) for r in rows} == {
        (n, f"big{n // 4}", f"leaf{n // 8}") for n in range(12)
    }
    (tmp_path / "hosts.txt").write_text("1 2 3 4 5\n")
    assert cli.main([*words, "--hosts", str(tmp_path / "hosts.txt")]) == 2
    assert "line 1 names no host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "host"),
    [
        ("/runs/gpu-a17_3121.1718000000000000000.pt.trace.json", "gpu-a17"),
        ("/runs/node07/rank3.json", "node07"),
        ("s3://b/run/host-3/rank-12.json.gz", "host-3"),
        ("/runs/rank3.json", None),
        ("/runs/anode07x/rank3.json", None),
    ],
)
def test_names_that_tell_a_host(source: str, host: str | None) -> None:
    members = pl.DataFrame({"source": [source], "rank": pl.Series([None], dtype=pl.Int64)})
    assert with_hosts(members, {})["host"].to_list() == [host]
    assert with_hosts(members, {"rank3": ("x", "y")})["host"].to_list() == [
        "x" if "rank3" in source else host
    ]
