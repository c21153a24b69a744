"""What a course writes, read back as any other recording."""

from pathlib import Path

import polars as pl
import torch

from capture.emit import Emitter
from capture.loaders import load
from engines.train import Trainer
from engines.training_loop import Course
from tests.engines.test_train import TINY


def recorded(path: Path, steps: int) -> pl.DataFrame:
    emitter = Emitter(path)
    emitter.run("tiny", {"model": "tiny"})
    course = Course(Trainer(TINY, torch.device("cpu")), emitter)
    course.warm_up(1)
    course.run(steps)
    emitter.end()
    (run,) = load(path, cache=False)
    return run.events


def test_steps_phases_and_rows(tmp_path: Path) -> None:
    events = recorded(tmp_path / "prof.jsonl", 3)
    steps = events.filter(kind="step")
    assert steps["step"].to_list() == [1, 2, 3]
    assert steps["tokens"].to_list() == [14, 14, 14]
    spans = events.filter(kind="span")
    assert spans.select("step", "phase").rows() == [
        (step, phase) for step in (1, 2, 3) for phase in ("forward", "backward", "optimizer")
    ]
    rows = events.filter(kind="kernel", step=2)
    counts = dict(rows.group_by("phase").len().rows())
    assert counts == {"forward": 1 + 2 * 20 + 3, "backward": 1 + 2 * 20 + 3, "optimizer": 21 + 1}


def test_rows_of_a_phase_add_up_to_it(tmp_path: Path) -> None:
    """All of the backward pass belongs to an op, and nearly all to a layer or an end of the model."""
    events = recorded(tmp_path / "prof.jsonl", 2)
    for step in (1, 2):
        for phase in ("forward", "backward", "optimizer"):
            own = events.filter(step=step, phase=phase)
            span = own.filter(kind="span")["dur"].item()
            assert own.filter(kind="kernel")["dur"].sum() == span
    backward = events.filter(kind="kernel", phase="backward")
    assert backward.filter(pl.col("layer").is_not_null())["name"].n_unique() == 20
    assert backward["op"].null_count() == 0


def test_categories_answer_where_attention_spends_its_time(tmp_path: Path) -> None:
    events = recorded(tmp_path / "prof.jsonl", 1).filter(kind="kernel", phase="forward", layer=1)
    core = events.filter(op="attn.core")
    assert core["category"].cast(str).to_list() == ["matmul", "elementwise", *["softmax"] * 4, "matmul"]
    pairs = 2 * 2 * 7 * 7
    assert core["flops"].to_list() == [2 * pairs * 8, 2 * pairs, *[pairs] * 4, 2 * pairs * 8]


def test_loss_is_a_counter(tmp_path: Path) -> None:
    losses = recorded(tmp_path / "prof.jsonl", 3).filter(kind="counter", name="loss")["value"].to_list()
    assert len(losses) == 3
    assert losses[0] > losses[2] > 0
