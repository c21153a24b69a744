"""Every number that two views of a file state of the same thing is one: in tables, parts and sentences."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from capture.run import Run
from tests.capture.test_fixtures import FILES
from tests.tracetui.runs import decode, made
from tests.tracetui.views.test_plausible_figures import CORPUS
from tracetui.look import Look
from tracetui.views import Answer, ask, load_view, load_views

Figures = dict[tuple[str, Any], list[tuple[str, float]]]  # (what, of which) → (view, number) of each place

SAID = {  # in sentences of any view: a number that the file has once
    "layers": re.compile(r"(?<![\w.])([\d,]+) layers(?! in | of )\b"),
    "tokens/s": re.compile(r"^([\d,]+(?:\.\d+)?) tok/s"),
    "busy of {}": re.compile(r"\b(gpu\d+) ([\d.]+)% busy (?:of|inside)"),
    "roof in {}": re.compile(r"\broof: ([\d,.]+) ([GT]B/s)"),
}


def list_answers(run: Run) -> dict[str, Answer]:
    """The answer of every view of one run, and of the kernels in each grouping that the run has."""
    views = [view for view in load_views() if view.run_count == 1]
    answers = {view.name: ask(view, [run], Look()) for view in views}
    groups = [g for g in ("op", "layer", "phase", "category", "step") if run.has(g)]
    return answers | {f"kernels by {g}": ask(load_view("kernels"), [run], Look(group=g)) for g in groups}


def has_all_in_steps(run: Run) -> bool:
    """Whether no kernel is of a pass that was recorded in part: Layers leaves these out."""
    return not run.has("step") or run.events.filter(kind="kernel")["step"].null_count() == 0


def iter_frames(run: Run, answers: dict[str, Answer]) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Name, key column and rows of each table in which a row is all that the file has under that key."""
    summary = answers["summary"].rows
    for name in ("name", "op", "layer", "phase", "category", "step"):
        by = "kernels" if name == "name" else f"kernels by {name}"
        if by in answers and name in answers[by].rows.columns:
            yield by, name, answers[by].rows
        if "part" in summary.columns:
            part = summary.filter(pl.col("part") == name)
            yield "summary", name, part.select(pl.col("name").alias(name), "count", "total_ns", "share")
    if {"op", "total_ns"} <= set(answers["roofline"].rows.columns):
        yield "roofline", "op", answers["roofline"].rows.select("op", "count", "total_ns", "share")
    for name in ("steps", "layers"):
        for view in ("detail", name):
            rows = answers[view].parts.get(name) if view == "detail" else answers[view].rows
            is_whole = view == "detail" or name == "steps" or has_all_in_steps(run)
            if rows is not None and is_whole and {name[:-1], "total_ns"} <= set(rows.columns):
                yield view, name[:-1], rows.group_by(name[:-1]).agg(pl.col("total_ns").sum())


def collect_figures(run: Run, answers: dict[str, Answer]) -> Figures:
    figures: Figures = defaultdict(list)
    for view, key, rows in iter_frames(run, answers):
        for column in ("count", "total_ns", "share"):
            if column in rows.columns:
                for at, number in rows.select(key, column).drop_nulls().iter_rows():
                    figures[f"{column} of {key}", str(at)].append((view, number))
    for view, speed in iter_decode_speeds(answers):
        figures["tokens/s", ""].append((view, speed))
    for view, answer in answers.items():
        for text in iter_texts(answer):
            for what, pattern in SAID.items():
                for found in pattern.finditer(text):
                    words = [g for g in found.groups() if not re.fullmatch(r"[\d,.]+", g)]
                    number = next(g for g in found.groups() if re.fullmatch(r"[\d,.]+", g))
                    figures[what.format(*words), ""].append(
                        (view, float(number.strip(",.").replace(",", "")))
                    )
    return figures


def iter_decode_speeds(answers: dict[str, Answer]) -> Iterator[tuple[str, float]]:
    """The decode speed in the facts of the summary, and the mean one of Now."""
    summary, pace = answers["summary"].rows, answers["now"].parts.get("pace")
    if "part" in summary.columns:
        for text in summary.filter(part="run", name="decode tokens/s")["text"]:
            yield "summary's facts", float(text.split()[0].replace(",", ""))
    if pace is not None and pace.height:
        for mean in pace.filter(pl.col("phase").cast(pl.String) == "decode")["mean_per_s"].drop_nulls():
            yield "now", mean


def iter_texts(answer: Answer) -> Iterator[str]:
    yield from answer.notes
    for frame in (answer.rows, *answer.parts.values()):
        for column, kind in frame.schema.items():
            if kind == pl.String and column in ("text", "advice", "evidence", "message", "value"):
                yield from frame[column].drop_nulls().unique(maintain_order=True)


def list_conflicts(run: Run) -> list[str]:
    """Each quantity of which two places state numbers further apart than the digits that are printed."""
    conflicts = []
    for (what, of), places in collect_figures(run, list_answers(run)).items():
        numbers = [number for _, number in places]
        if max(numbers) - min(numbers) > 1.1e-3 * max(abs(n) for n in numbers):
            conflicts.append(f"{what} {of}: {sorted(set(places))}")
    return conflicts


@pytest.mark.corpus
@pytest.mark.parametrize("path", [*FILES, *CORPUS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_two_views_state_one_number_of_one_thing(path: Path) -> None:
    try:
        runs = load(path, cache=False)
    except CaptureError:
        pytest.skip("holds no profile")
    assert [conflict for run in runs[:2] for conflict in list_conflicts(run)] == []


def test_tables_and_sentences_are_paired() -> None:
    """That the pairs exist: of a made decode each of these stands in several views."""
    run = decode(steps=8, layers=3)
    figures = collect_figures(run, list_answers(run))
    paired = {what for (what, _), places in figures.items() if len({view for view, _ in places}) > 1}
    keys = ("name", "op", "step", "layer", "phase", "category")
    assert {*(f"total_ns of {key}" for key in keys), "share of name", "tokens/s"} <= paired


def test_a_number_that_differs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made([{"name": "gemm", "op": "mlp.up", "dur": 100, "lens": "gpu", "step": 1, "t": 0}])
    answers = list_answers(run)
    wrong = answers["kernels"].rows.with_columns(total_ns=pl.col("total_ns") + 1)
    answers["kernels"] = Answer(wrong, answers["kernels"].notes, answers["kernels"].key)
    monkeypatch.setattr("tests.tracetui.views.test_paired_numbers.list_answers", lambda run: answers)
    (conflict,) = list_conflicts(run)
    assert "total_ns of name gemm" in conflict
