"""What steps and rows of a program are: their phases, sizes and parts."""

from pathlib import Path

import polars as pl
import pytest

from capture.native.line_types import ColumnsLine
from capture.native.schema import RECORDING_NAME
from tests.capture.record.recorded_code import recorded, run, told

pytestmark = pytest.mark.slow

pytest.importorskip("torch")


def test_training_in_eval_mode_is_training_and_evaluation_is_not(tmp_path: Path) -> None:
    """Told by backward and optimizer: two batches make a step, and the last five forwards make one each."""
    code = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    for _ in range(2):
        model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
for _ in range(5):
    model(torch.ones(2, 8))
"""
    assert run(code, tmp_path).stderr == ""
    assert told(tmp_path) == [[11, 17, 1]]
    events = recorded(tmp_path).events.sort("t")
    assert events.filter(kind="step")["phase"].to_list() == [None] * 6 + ["forward"] * 5
    assert events.filter(kind="step")["shape"].to_list() == ["4x8"] * 6 + ["2x8"] * 5
    layers = events.filter(kind="kernel", name="0", lens="wall")
    assert layers["phase"].cast(str).to_list()[2:12] == ["forward"] * 10


def test_a_training_step_of_unequal_batches_has_no_sizes(tmp_path: Path) -> None:
    """Each of three steps reads two batches; those of the second differ in their rows."""
    code = """
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in (2, 3, 2):
    for batch in (2, rows):
        model(torch.ones(batch, 8)).sum().backward()
    optimizer.step()
"""
    assert run(code, tmp_path).stderr == ""
    marks = recorded(tmp_path).events.filter(kind="step").sort("t")
    assert marks.select("batch", "shape").rows() == [(4, "4x8"), (None, None), (4, "4x8")]


def test_modules_of_one_type_are_rows_of_their_own(tmp_path: Path) -> None:
    """Five layers called by themselves, and five in a sequence."""
    code = """
layers = [nn.Linear(8, 8) for _ in range(5)]
net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(5)], nn.Linear(8, 80))
x = torch.ones(1, 8)
for layer in layers:
    x = layer(x)
net(x)
"""
    assert run(code, tmp_path).stderr == ""
    rows = recorded(tmp_path).events.filter(kind="kernel", lens="wall")
    names = set(rows["name"].cast(str)) - {"host", "Sequential (own work)"}
    assert names == {"Linear", *(f"Linear {n}" for n in range(2, 6)), *"012345"}


def test_a_forward_has_the_sizes_of_its_input(tmp_path: Path) -> None:
    code = """
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for sizes in ((2, 5, 8), (2, 7, 8), (3, 8)):
    net(torch.ones(sizes))
"""
    assert run(code, tmp_path).stderr == ""
    steps = recorded(tmp_path).events.filter(kind="step").select("phase", "batch", "shape")
    assert steps.rows() == [("forward", 2, "2x5x8"), ("forward", 2, "2x7x8"), ("forward", 3, "3x8")]


def test_a_step_that_reads_several_tokens_says_how_many_and_the_kind_of_its_cache(tmp_path: Path) -> None:
    code = """
class StaticCache:
    def get_seq_length(self):
        return 0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 8), nn.Linear(8, 64)

    def forward(self, ids, past_key_values=None):
        return self.head(self.embed(ids))

net, ids = Net(), torch.ones(2, 9, dtype=torch.long)
net(ids[:, :4], past_key_values=StaticCache())
net(ids[:, :1])
for n in (5, 6, 7):
    net(ids[:, :n])
"""
    assert run(code, tmp_path).stderr == ""
    run_ = recorded(tmp_path)
    steps = run_.events.filter(kind="step").select(pl.col("phase", "shape").cast(pl.String), "context")
    assert steps.rows() == [
        ("prefill", "2x4", 4), ("decode", None, 5), ("prefill", "2x5", 5), ("decode", "2x6", 6),
        ("decode", "2x7", 7),
    ]  # fmt: skip
    assert run_.meta["kv_cache"] == "StaticCache"


TRAINS = """
from torch.utils.data import DataLoader, TensorDataset
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(24, 8)), batch_size=2)
for number, (x,) in enumerate(loader):
    loss = model(x).square().mean()
    loss.backward()
    if number % 3 == 2:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_training_step_has_its_parts_and_lasts_until_the_optimizer(tmp_path: Path) -> None:
    """12 batches, of which three make one step each."""
    assert run(TRAINS, tmp_path).stderr == ""
    events = recorded(tmp_path).events
    marks = events.filter(kind="step")
    assert marks.height == 4 and told(tmp_path) == [[4, 12, 1]]
    assert marks.select("batch", "shape").unique().rows() == [(6, "6x8")]
    is_work = (pl.col("kind") == "kernel") | (pl.col("name") == RECORDING_NAME)
    rows = events.filter(is_work, lens="wall")
    batch = ["Sequential (own work)", "0", "1", "2", "loss and host", "backward", "host"]
    data = ["data", "host"]  # the last asks for data, too, and is told that there is no more
    parts = [RECORDING_NAME, *(batch + data) * 2, *batch, "optimizer", "host", *data]
    for step, start, took in marks.select("step", "t", "dur").iter_rows():
        own = rows.filter(rows["step"] == step).sort("t")
        assert own["name"].cast(str).to_list() == parts
        assert set(own.filter(own["name"].cast(str).is_in(["0", "1", "2"]))["phase"]) == {"forward"}
        for part in ("backward", "optimizer"):
            assert set(own.filter(own["name"].cast(str) == part)["phase"]) == {part}
        assert own["t"][0] == start and own["t"][-1] + own["dur"][-1] == start + took, "nothing is left over"
        assert own["dur"].sum() <= took
        following = marks.filter(marks["step"] == step + 1)["t"]
        assert following.is_empty() or following[0] >= start + took


def test_lines_of_several_processes_are_told_apart() -> None:
    """By a number of their own, which neither a rank nor another process has."""
    lines = [
        ColumnsLine(kind="columns", op=[], dur=[], rank=3),
        ColumnsLine(kind="columns", op=[], dur=[], writer=3),
    ]
    assert len({line.writer_id for line in lines}) == 2
