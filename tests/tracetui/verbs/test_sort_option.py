"""--sort names a column of the answer, which is computed once."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from msgspec import structs

from tests.commands import Command, prepare
from tests.tracetui.in_process import tracetui

REPORT = ("report", "kernels", "sample:decode")
DIFF = ("diff", "sample:decode", "sample:slowed")
COMPARE = ("compare", "sample:decode", "sample:slowed")


@pytest.mark.parametrize(
    ("words", "view"),
    [(REPORT, "kernels"), (DIFF, "diff"), (COMPARE, "compare")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sorted_answer_is_computed_once(
    words: tuple[str, ...], view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, answers = import_module(f"tracetui.views.{view}"), []

    def count(*args: object) -> object:
        answers.append(args)
        return original(*args)

    original = module.VIEW.answer
    monkeypatch.setattr(module, "VIEW", structs.replace(module.VIEW, answer=count))
    result = tracetui(*words, "--sort", "row" if view == "compare" else "name", "--format", "csv")
    assert result.returncode == 0, result.stderr
    assert len(answers) == 1


@pytest.mark.parametrize("column", ["mean", "mean_ns"])
def test_column_is_named_by_heading_or_name(column: str) -> None:
    words = (*REPORT, "--sort", column, "--reverse", "--format", "json")
    means = [row["mean_ns"] for row in json.loads(tracetui(*words).stdout)["rows"]]
    assert means == sorted(means) and len(set(means)) > 1


def test_unknown_column_is_rejected() -> None:
    result = tracetui(*REPORT, "--sort", "menn")
    assert result.returncode == 2 and "no column is called 'menn'; did you mean mean" in result.stderr


@pytest.mark.parametrize("word", ["comm", "comm_ns", "comm,rank"])
def test_sort_column_of_the_rank_map_is_the_time_that_it_draws(word: str, tmp_path: Path) -> None:
    prepare(Command("", "tracetui report rankmap run-folder"), tmp_path)
    result = tracetui("report", "rankmap", tmp_path / "run-folder", "--merge", "--sort", word)
    assert result.returncode == 0 and "colours compare the comm of a rank" in result.stdout, result.stderr
