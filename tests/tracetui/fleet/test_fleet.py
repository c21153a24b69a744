"""Many files: one answer, the same whoever computes it, right by a sum in plain Python, with losses named."""

import json
import math
import os
import random
import re
import statistics
from functools import reduce
from pathlib import Path

import polars as pl
import pytest
import scipy.stats

from capture.errors import UsageError
from capture.load_runs import _parse_source as parse
from capture.load_runs import load
from tests.conftest import FIXTURES
from tests.tracetui.fleet.asked import RANKS, VIEWS, here, ignore, jobs, same
from tests.tracetui.fleet.made import NAMES, durations, fleet, written
from tracetui import cli
from tracetui.analysis.merged import duration_sketch
from tracetui.analysis.merged.partial_results import MergeTree, merge_frames, merge_results
from tracetui.fleet import file_job
from tracetui.fleet.ask_files import ask_files, make_jobs
from tracetui.fleet.file_job import run_job
from tracetui.look import Look
from tracetui.views import ask, load_view, load_views


def test_the_kernel_table_is_the_sum_in_plain_python(folder: Path) -> None:
    rows = {row["name"]: row for row in here(jobs(folder, "kernels")).answer.rows.to_dicts()}
    assert set(rows) == set(NAMES)
    every = [(rank, row) for rank in range(RANKS) for row in durations(rank)]
    whole = sum(row["dur"] for _, row in every)
    for name in NAMES:
        own = sorted(row["dur"] for _, row in every if row["name"] == name)
        by_rank = [
            sum(r["dur"] for rank, r in every if r["name"] == name and rank == n) for n in range(RANKS)
        ]
        got = rows[name]
        assert (got["count"], got["total_ns"], got["min_ns"], got["max_ns"]) == (
            len(own),
            sum(own),
            own[0],
            own[-1],
        )
        assert (got["files"], got["least_ns"], got["most_ns"]) == (RANKS, min(by_rank), max(by_rank))
        assert got["share"] == pytest.approx(sum(own) / whole)
        assert got["spread_share"] == pytest.approx((max(by_rank) - min(by_rank)) / (sum(own) / RANKS))
        assert got["mean_ns"] == round(sum(own) / len(own))
        for column, part in (("p50_ns", 0.5), ("p95_ns", 0.95), ("p99_ns", 0.99)):
            place = part * (len(own) - 1)
            low, high = own[math.floor(place)], own[math.ceil(place)]
            exact = low + (high - low) * (place - math.floor(place))
            assert got[column] == pytest.approx(exact, abs=exact * duration_sketch.MAX_RELATIVE_ERROR + 0.5)


def test_ranks_of_many_files_are_those_of_the_merged_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "ranks", str(folder), "--merge", "--format", "csv", "--no-cache"]) == 0
    merged = capsys.readouterr().out
    assert cli.main(["report", "ranks", str(folder), "--on", "local:2", "--format", "csv"]) == 0
    assert capsys.readouterr().out == merged and merged.count("\n") == RANKS + 1


def test_a_straggler_among_files_is_named_with_evidence(tmp_path: Path) -> None:
    answer = here(jobs(fleet(tmp_path / "ranks", 8, steps=40), "ranks")).answer
    assert any(note.startswith("straggler: rank 5 is late,") and "mlp.down" in note for note in answer.notes)


def test_a_wrong_file_is_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fleet(tmp_path / "ranks", 3)
    (tmp_path / "all.txt").write_text("ranks/rank000.jsonl\nranks/none.jsonl\nranks/rank002.jsonl\n")
    words = ["report", "kernels", f"@{tmp_path}/all.txt", "--on", "local:1"]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert "note: one answer about 2 files" in out and "1 of 3 files could not be read" in out
    assert "none.jsonl: no such file" in err
    assert cli.main([*words, "--strict"]) == 4
    for path in folder.iterdir():
        path.unlink()
    assert cli.main(words) == 3
    assert "none of 3 files could be read" in capsys.readouterr().err


def test_one_file_has_the_answer_of_today(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("kernels", "ranks"):
        words = ["report", name, str(folder / "rank005.jsonl"), "--format", "csv"]
        assert cli.main(words) == cli.main([*words, "--on", "local:2"]) == 0
        plain = capsys.readouterr().out
        assert plain[: len(plain) // 2] == plain[len(plain) // 2 :]


def test_many_files_are_one_answer_unless_one_is_chosen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "kernels", str(folder)]) == 0
    assert f"one answer about {RANKS} files" in capsys.readouterr().out
    assert cli.main(["report", "kernels", str(folder / "rank005.jsonl"), "--format", "csv"]) == 0
    alone = capsys.readouterr().out
    for which in ("6", "rank005"):
        assert cli.main(["report", "kernels", str(folder), "--run", which, "--format", "csv"]) == 0
        out, err = capsys.readouterr()
        assert out == alone and f"rank005.jsonl, file 6 of {RANKS}" in err
    assert cli.main(["report", "kernels", str(folder), "--run", "rank00"]) == 2
    assert "10 files are called 'rank00'" in capsys.readouterr().err


def test_one_of_many_is_read_without_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "capture.load_runs._parse_source", lambda *given: (read.append(given[0].label), parse(*given))[1]
    )
    assert cli.main(["report", "kernels", str(folder), "--run", "6", "--no-cache"]) == 0
    assert [Path(label).name for label in read] == ["rank005.jsonl"]


def test_the_map_holds_every_rank_against_the_median_of_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path / "ranks", 8, steps=5)
    work: dict[tuple[int, int], int] = {}
    for rank in range(8):
        for row in durations(rank, 5):
            if row["name"] != "all_reduce":
                work[rank, row["step"]] = work.get((rank, row["step"]), 0) + row["dur"]
    answer = here(jobs(folder, "rankmap")).answer
    assert [(r["rank"], r["step"]) for r in answer.rows.to_dicts()] == sorted(work)
    for row in answer.rows.to_dicts():
        middle = statistics.median(work[rank, row["step"]] for rank in range(8))
        assert row["work_ns"] == work[row["rank"], row["step"]]
        assert row["behind_share"] == pytest.approx(row["work_ns"] / middle - 1)
    assert cli.main(["report", "rankmap", str(folder), "--merge"]) == 0
    merged = capsys.readouterr().out
    assert cli.main(["report", "rankmap", str(folder), "--on", "local:1"]) == 0
    assert capsys.readouterr().out == merged.replace(
        "\nnote: ", "\nnote: one answer about 8 files\nnote: ", 1
    )
    slow = next(line for line in merged.splitlines() if line.split()[:1] == ["5"])
    late = [r["behind_share"] for r in answer.rows.to_dicts() if r["rank"] == 5]
    assert slow.split()[1:] == [f"{100 * share:+.0f}%" for share in late]


def test_the_summary_of_many_adds_up_and_names_who_stands_out(tmp_path: Path) -> None:
    rows = here(jobs(fleet(tmp_path / "ranks", 12, steps=20), "summary")).answer.rows.to_dicts()
    parts = {(row["part"], row["name"]): row for row in rows}
    every = [row for rank in range(12) for row in durations(rank, 20)]
    whole = sum(row["dur"] for row in every)
    for name in NAMES:
        own = [row["dur"] for row in every if row["name"] == name]
        assert (parts["name", name]["total_ns"], parts["name", name]["count"]) == (sum(own), len(own))
        assert parts["name", name]["share"] == pytest.approx(sum(own) / whole)
    assert parts["run", "files"]["text"] == "12" and parts["run", "device"]["text"] == "paper"
    assert parts["run", "decode steps"]["text"] == "20"
    totals = [sum(row["dur"] for row in durations(rank, 20)) for rank in range(12)]
    ratio = totals[5] / statistics.median(totals)
    assert [row["name"] for row in rows if row["part"] == "outlier"] == ["rank005.jsonl"]
    assert parts["outlier", "rank005.jsonl"]["text"].endswith(f"{ratio:.2f} times the median")


def test_the_doctor_counts_what_files_cannot_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path / "ranks", 3)
    (folder / "plain.jsonl").write_bytes((FIXTURES / "native" / "columns.jsonl").read_bytes())
    assert cli.main(["doctor", str(folder), "--on", "local:1"]) == 0
    out = capsys.readouterr().out
    assert "4 files with 4 runs, " in out and " records read, " in out
    assert "  can answer: summary, kernels" in out
    assert "  cannot answer memory: it needs kind:memory" not in out
    assert "cannot answer ranks: it needs several ranks\n" in out
    single = [line for line in out.splitlines() if "of 4 runs)" in line]
    assert single, out


def test_two_fleets_are_compared_by_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Held to scipy's own t-test on numbers that plain Python adds up."""
    a, b = fleet(tmp_path / "a", 5, steps=20), fleet(tmp_path / "b", 12, steps=20)
    for path in sorted(b.iterdir())[:5]:
        path.unlink()  # ranks 5 to 11 stay, of which 5 is slow in ffn_down
    words = ["diff", str(a), str(b), "--on", "local:2", "--format", "json"]
    assert cli.main(words) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    for name in NAMES:
        sides = [
            [math.log(sum(r["dur"] for r in durations(n, 20) if r["name"] == name) / 20) for n in ranks]
            for ranks in (range(5), range(5, 12))
        ]
        seen = scipy.stats.ttest_ind(sides[1], sides[0], equal_var=False)
        interval = seen.confidence_interval(0.95)
        row = rows[name]
        change = statistics.mean(sides[1]) - statistics.mean(sides[0])
        assert row["p"] == pytest.approx(seen.pvalue, rel=1e-6)
        assert row["change_pct"] == pytest.approx(100 * math.expm1(change), rel=1e-6)
        assert row["change_low_pct"] == pytest.approx(100 * math.expm1(interval.low), rel=1e-6)
        assert row["change_high_pct"] == pytest.approx(100 * math.expm1(interval.high), rel=1e-6)
        assert (row["files_a"], row["files_b"]) == (5, 7)


@pytest.mark.slow
def test_a_slower_fleet_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = fleet(tmp_path / "a", 6, steps=20), fleet(tmp_path / "b", 6, steps=20)
    gate = ["--on", "local:1", "--fail-over", "3%"]
    assert cli.main(["diff", str(a), str(b), *gate]) == 0
    slow = fleet(tmp_path / "c", 6, steps=20, slow="rmsnorm")
    assert cli.main(["diff", str(a), str(slow), *gate]) == 1
    assert cli.main(["diff", str(a), str(slow), *gate, "--rows", "ffn"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "slower" in line]
    assert rows and all(line.startswith("rmsnorm") for line in rows)
    assert cli.main(["diff", str(a / "rank000.jsonl"), str(b / "rank000.jsonl"), *gate]) == 4
    assert "not enough evidence" in capsys.readouterr().err


def test_what_cannot_be_merged_is_said(folder: Path) -> None:
    for asked in load_views():
        assert asked.run_count > 1 or bool(asked.merging) != bool(asked.not_merged_because), asked.name
        if not asked.merging:
            why = re.escape(asked.not_merged_because or "it compares runs")
            with pytest.raises(UsageError, match=f"the {asked.name} view cannot be merged over files.*{why}"):
                jobs(folder, asked.name)
    with pytest.raises(UsageError, match="choose local:N"):
        ask_files(load_view("kernels"), jobs(folder, "kernels"), "slurm:4", ignore)
    with pytest.raises(UsageError, match="invalid number of processes"):
        ask_files(load_view("kernels"), jobs(folder, "kernels"), "local:x", ignore)


@pytest.mark.parametrize(("module", "extra"), [("distributed", "dask"), ("ray", "ray")])
def test_a_missing_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    monkeypatch.setattr("tracetui.fleet.executors.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf"needs {module}, .*pip install 'tracetui\[{extra}\]'"):
        ask_files(load_view("kernels"), jobs(folder, "kernels"), f"{extra}://127.0.0.1:1", ignore)


@pytest.mark.corpus
@pytest.mark.parametrize("name", VIEWS)
def test_parts_are_merged_in_any_order(folder: Path, name: str) -> None:
    shapes = load_view(name).merging.shapes  # type: ignore[union-attr]
    parts = [run_job(job).partial for job in jobs(folder, name)[:7]]
    assert all(parts)
    straight = reduce(lambda a, b: merge_results((a, b), shapes), parts)  # type: ignore[arg-type,return-value]
    for number in range(3):
        mixed = list(parts)
        random.Random(number).shuffle(mixed)
        while len(mixed) > 1:  # neighbours first, as in a tree
            mixed = [
                merge_results(pair, shapes) if len(pair) == 2 else pair[0]  # type: ignore[misc]
                for pair in (mixed[i : i + 2] for i in range(0, len(mixed), 2))
            ]
        assert straight is not None and mixed[0] is not None
        assert {n: written(f) for n, f in straight.frames.items()} == {
            n: written(f) for n, f in mixed[0].frames.items()
        }
        assert straight.shared_meta == mixed[0].shared_meta


@pytest.mark.parametrize("total", [1, 2, 3, 5, 8, 13])
def test_a_fold_merges_each_part_once_in_the_same_tree(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are texts here, and merging writes brackets: the tree can be read."""
    monkeypatch.setattr(
        "tracetui.analysis.merged.partial_results.merge_results",
        lambda results, shapes: "({}{})".format(*results),
    )
    trees = set()
    for number in range(10):
        order = random.Random(number).sample(range(total), total)
        fold = MergeTree(total, {})
        for place in order:
            fold.add(place, None if place == 1 else chr(97 + place))  # type: ignore[arg-type]
        trees.add(fold.result)
    assert len(trees) == 1
    letters = str(trees.pop()).replace("(", "").replace(")", "")
    assert letters.replace("None", "") == "".join(chr(97 + n) for n in range(total) if n != 1)


@pytest.mark.parametrize("many", [1000, 5000])  # few enough to be kept, and too many
def test_a_sketch_keeps_its_promise(many: int) -> None:
    draw = random.Random(1)
    values = sorted([0, 1, 1, 2, 7, *(int(draw.lognormvariate(10, 3)) for _ in range(many))])
    durations = pl.DataFrame({"key": ["k"] * len(values), "dur": values})
    counts = duration_sketch.build_sketch(durations, "key")
    error = duration_sketch.MAX_RELATIVE_ERROR if len(set(values)) > duration_sketch.MAX_EXACT_VALUES else 0
    asked = [(f"q{n}", n / 100) for n in (0, 1, 10, 50, 90, 99, 100)]
    [row] = duration_sketch.estimate_quantiles(counts, "key", asked).to_dicts()
    for name, part in asked:
        place = part * (len(values) - 1)
        low, high = values[math.floor(place)], values[math.ceil(place)]
        exact = low + (high - low) * (place - math.floor(place))
        assert row[name] == pytest.approx(exact, abs=exact * error + 0.5)


def test_sketches_of_many_durations_are_merged_in_any_order() -> None:
    """Some parts keep their values, others do not: what comes out knows no order."""
    draw, shape = random.Random(2), load_view("kernels").merging.shapes["sketch"]  # type: ignore[union-attr]
    parts = []
    for size in (10, 3000, 1500, 40, 1200, 2500):
        durations = [draw.randrange(size * 3) for _ in range(size)]
        groups = [draw.choice("ab") for _ in range(size)]
        parts.append(duration_sketch.build_sketch(pl.DataFrame({"group": groups, "dur": durations}), "group"))
    one = merge_frames(parts, shape)
    assert one["bucket"].null_count() == 0
    for _ in range(5):
        draw.shuffle(parts)
        assert written(reduce(lambda a, b: merge_frames([a, b], shape), parts)) == written(one)


def test_a_second_question_reads_no_file_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACETUI_NO_CACHE", raising=False)
    asked = make_jobs(load_view("kernels"), [str(folder)], Look(), cache=True, capture=None)[:3]
    first = here(asked)
    monkeypatch.setattr("tracetui.fleet.file_job.load", lambda *a, **k: pytest.fail("a file is read again"))
    assert same(here(asked), first)


def test_a_small_file_is_read_again_when_it_or_its_config_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACETUI_NO_CACHE", raising=False)
    reads = []
    read = file_job.load
    monkeypatch.setattr(file_job, "load", lambda *a, **k: reads.append(a) or read(*a, **k))
    two = fleet(tmp_path / "two", 2)
    asked = make_jobs(load_view("kernels"), [str(two)], Look(), cache=True, capture=None)
    first = here(asked)
    here(asked)
    assert len(reads) == 2
    status = (two / "rank001.jsonl").stat()
    fleet(tmp_path / "other", 3)
    (tmp_path / "other" / "rank002.jsonl").rename(two / "rank001.jsonl")
    os.utime(two / "rank001.jsonl", ns=(status.st_atime_ns, status.st_mtime_ns))
    second = here(asked)
    assert len(reads) == 3
    assert not same(second, first)
    (two / "config.json").write_text('{"num_hidden_layers": 1}')
    here(asked)
    assert len(reads) == 5


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/*.json*"))[::3], ids=lambda path: path.name)
def test_twice_the_same_file_is_twice_its_table(path: Path) -> None:
    """Whatever program wrote it: sums double, and what is not a sum stays."""
    asked = make_jobs(load_view("kernels"), [str(path)] * 2, Look(), cache=False, capture=None)
    alone = ask(load_view("kernels"), load(path, cache=False)[:1], Look()).rows
    if len(load(path, cache=False)) > 1 or alone.is_empty():
        pytest.skip("several runs, or no kernels")
    rows = here(asked).answer.rows
    both = alone.with_columns(pl.col("name").cast(pl.String)).join(
        rows, on="name", suffix="_both", nulls_equal=True
    )
    assert both.height == alone.height == rows.height
    for column in ("total_ns", "count"):
        assert both[f"{column}_both"].to_list() == [2 * n if n is not None else None for n in both[column]]
    for column in ("min_ns", "max_ns", "op", "layer", "category"):
        assert both[f"{column}_both"].cast(pl.String).to_list() == both[column].cast(pl.String).to_list()
    for column in ("share", "mean_ns"):
        assert both[f"{column}_both"].to_list() == pytest.approx(both[column].to_list(), rel=1e-9, abs=1)


@pytest.mark.slow
def test_a_map_that_is_cut_says_so_and_names_the_rank_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fleet(tmp_path / "ranks", 48, steps=2)
    (folder / "rank047.jsonl").write_text((folder / "rank005.jsonl").read_text().replace('"r5"', '"r47"'))
    (folder / "rank005.jsonl").unlink()
    assert cli.main(["report", "rankmap", str(folder), "--on", "local:2"]) == 0
    out = capsys.readouterr().out
    shown = [line for line in out.splitlines() if line.startswith("rank: ")]
    assert len(shown) == 1 and "of 47" in shown[0]
    assert "most work: rank " in out
