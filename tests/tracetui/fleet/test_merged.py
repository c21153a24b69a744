"""Files of ranks, asked one by one, have exactly the answer of the one run that they make together."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load_all
from capture.native.schema import seal_record
from tests.tracetui.fleet.asked import here
from tests.tracetui.fleet.made import META, decoders, written
from tracetui import cli
from tracetui.analysis.merged import duration_sketch
from tracetui.analysis.merged.partial_results import (
    MEMBERS,
    FrameShape,
    MergeTree,
    PartialResult,
    merge_block,
)
from tracetui.fleet.ask_files import make_jobs
from tracetui.look import Look
from tracetui.views import ask, load_view

RANKS = 5
FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoders(tmp_path_factory.mktemp("launch"), RANKS)


AS_ONE_RUN = ("kernels", "ranks", "rankmap", "layers", "growth", "shapes", "roofline", "tree", "calls",
              "counters", "memory")  # fmt: skip
LOOKS = (
    Look(),
    Look(group="op"),
    Look(group="layer"),
    Look(group="step"),
    Look(per="step"),
    Look(per="token", group="op"),
    Look(filter="gemm|ring", group="shape"),
    Look(phase="decode", window=(2, 5), per="step"),
    Look(focus=(("layer", 2),)),
    Look(steady=True, per="step"),
    Look(group="track"),
)


# every look at kernels, and the first ones at the other views
CASES = [
    pytest.param(name, look, marks=pytest.mark.slow if i > 3 and name != "kernels" else (), id=f"{name}-{i}")
    for name in AS_ONE_RUN
    for i, look in enumerate(LOOKS)
]


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "look"), CASES)
def test_the_answer_of_many_is_that_of_the_merged_run(launch: Path, name: str, look: Look) -> None:
    look = replace(look, focus=(("scope", "layers.2"),)) if name == "calls" else look
    actual, wanted = asked_apart(launch, name, look), asked_together(launch, name, look)
    assert actual.columns == wanted.columns
    if look.filter and "cumulative_share" in actual.columns:  # among rows that no file sends: unknown
        assert actual["cumulative_share"].null_count() == actual.height
        actual, wanted = actual.drop("cumulative_share"), wanted.drop("cumulative_share")
    if look.filter and name == "tree":
        assert actual["share"].null_count() == actual.height
        actual, wanted = actual.drop("share"), wanted.drop("share")
    for one, other in zip(json.loads(written(actual)), json.loads(written(wanted)), strict=True):
        assert one == other
    assert actual.height


def asked_apart(launch: Path, name: str, look: Look) -> pl.DataFrame:
    jobs = make_jobs(load_view(name), [str(launch)], replace(look, merged=True), cache=False, capture=None)
    return here(jobs).answer.rows


def asked_together(launch: Path, name: str, look: Look) -> pl.DataFrame:
    [whole] = load_all([launch], merge=True, cache=False)
    return ask(load_view(name), [whole], look).rows


@pytest.mark.parametrize("name", ["tree", "calls"])
@pytest.mark.parametrize("lens", ["gpu", "wall"])  # spans of a device only cover its kernels
def test_scopes_that_times_tell_are_added_up(tmp_path: Path, name: str, lens: str) -> None:
    for rank in range(3):
        head = {"kind": "run", "schema": 1, "id": f"r{rank}", "name": "job", "meta": {**META, "rank": rank}}
        rows: list[dict[str, Any]] = [{"kind": "span", "name": "model", "t": 0, "dur": 10_000 + rank}]
        rows += [{"kind": "span", "name": f"block {n}", "t": 1000 * n, "dur": 900} for n in range(4)]
        rows += [{"kind": "kernel", "name": "gemm", "t": 1000 * n + 5, "dur": 80 * (rank + n)}
                 for n in range(4) if (rank, n) != (1, 2)]  # fmt: skip
        lines = [head, *({**row, "lens": lens, "track": "main"} for row in rows)]
        (tmp_path / f"rank{rank}.jsonl").write_bytes(b"".join(map(seal_record, lines)))
    look = Look(focus=(("scope", "block 2"),)) if name == "calls" else Look()
    actual = asked_apart(tmp_path, name, look)
    assert written(actual) == written(asked_together(tmp_path, name, look))
    block = actual.filter(pl.col("scope").str.strip_chars() == "block 2")
    assert block["count"].to_list()[0] == 3  # of the rank, too, that has no kernel in it


def test_merge_on_is_merge_for_whoever_asks(launch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "kernels", str(launch), "--merge", "--format", "json"]
    assert cli.main(words) == cli.main([*words, "--on", "local:2"]) == 0
    one, place = json.JSONDecoder().raw_decode(out := capsys.readouterr().out)
    assert one["rows"] and one["rows"] == json.loads(out[place:])["rows"]


def test_percentiles_stay_exact_until_there_are_many_durations(
    launch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [whole] = load_all([launch], merge=True, cache=False)
    exact = {row["name"]: row["p95_ns"] for row in ask(load_view("kernels"), [whole], Look()).rows.to_dicts()}
    monkeypatch.setattr(
        duration_sketch, "MAX_EXACT_VALUES", 115
    )  # three rows have 140 durations, that of four ranks has 112
    fleet = here(make_jobs(load_view("kernels"), [str(launch)], Look(merged=True), cache=False, capture=None))
    actual = {row["name"]: row["p95_ns"] for row in fleet.answer.rows.to_dicts()}
    assert actual["ring"] == exact["ring"]
    assert actual != exact and actual == pytest.approx(exact, rel=duration_sketch.MAX_RELATIVE_ERROR)
    assert "percentiles of 3 rows are approximate, off by at most 0.5%" in fleet.answer.notes


def test_an_import_of_many_adds_what_was_read_and_lost(
    launch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (launch / "rank000.jsonl").read_bytes()
    lines = good.count(b"\n") - 1  # the first is the head
    for number in range(3):
        (tmp_path / f"rank{number}.jsonl").write_bytes(good + b"no line\n" * number)
    assert cli.main(["report", "import", str(tmp_path), "--on", "local:1", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    counts = {row["what"]: row["count"] for row in rows[:4]}
    assert counts == {"read": 3 * lines + 3, "kept": 3 * lines, "repaired": 0, "dropped": 3}
    lost = [row["count"] for row in rows[4:] if row["severity"] == "data_loss"]
    assert lost == [3]


def test_a_summary_without_layers_is_merged_with_a_trace_that_has_them() -> None:
    """The summary has neither durations of single launches nor a column of layers."""
    paths = [str(FIXTURES / "nsys" / name) for name in ("kern_sum.csv", "two_processes.sqlite")]
    jobs = make_jobs(load_view("kernels"), paths, Look(group="layer", merged=True), cache=False, capture=None)
    layers = here(jobs).answer.rows["layer"].to_list()
    assert None in layers and any(layer is not None for layer in layers)


def test_a_block_is_merged_to_the_last_bit_as_its_files_one_by_one() -> None:
    shapes = {"sums": FrameShape(("key",), {"work": "sum"}), "counts": FrameShape(("key",), {"times": "sum"})}
    dice, tree, parts = random.Random(3), MergeTree(16, shapes), []
    for member in range(16):
        frames = {
            MEMBERS: pl.DataFrame({"member": [member], "run": [0]}),
            "sums": pl.DataFrame({"key": ["a", "b"], "work": [dice.random(), dice.random() * 1e9]}),
        }
        if member % 3:  # a frame that some files lack
            frames["counts"] = pl.DataFrame({"key": ["a", "c"], "times": [1, dice.randrange(9)]})
        parts.append(PartialResult(frames, {"device": '"paper"', "rank": str(member)}))
        tree.add(member, parts[-1])
    block = merge_block(parts, shapes)
    assert tree.result is not None
    assert block.shared_meta == tree.result.shared_meta == {"device": '"paper"'}
    assert block.frames.keys() == tree.result.frames.keys()
    assert all(frame.equals(tree.result.frames[name]) for name, frame in block.frames.items())
