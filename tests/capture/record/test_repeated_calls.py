"""Calls of one form, which are noted in a shorter way, by what the program itself counts of them."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.native.schema import RECORDING_NAME
from tests.capture.record.recorded_code import recorded, run, steps
from tests.capture.record.test_harmless import INTERRUPTS

pytestmark = pytest.mark.slow

MODEL = """
import gc, sys, threading, time, weakref, torch
from torch import nn
torch.set_num_threads(1)
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.act = nn.Linear(8, 8), nn.ReLU()
        self.fails, self.calls = False, 0
    def forward(self, x):
        self.calls += 1
        if self.fails:
            raise ValueError("refused")
        return self.act(self.inner(x))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(10, 8), nn.ModuleList(Layer() for _ in range(3))
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            try:
                x = layer(x)
            except ValueError:
                if layer.fails > 1:
                    raise
        return x
model = Model().eval()
def work(times, ids=torch.ones(1, 1, dtype=torch.long)):
    with torch.no_grad():
        for _ in range(times):
            model(ids)
work(12)
"""


def test_steps_and_rows_are_the_calls_that_the_program_counts(tmp_path: Path) -> None:
    """Also of other inputs and modules between them, and of layers that fail."""
    code = """
other = nn.Linear(8, 8)
for number in range(30):
    work(3)
    if number % 3 == 0:
        work(1, torch.ones(2, 5, dtype=torch.long))
    if number % 5 == 0:
        other(torch.ones(1, 8))
    model.layers[1].fails = number % 7 == 0
    if number % 7 == 0:
        time.sleep(0.11)
print(model.layers[0].calls, model.layers[2].calls)
"""
    result = run(MODEL + code, tmp_path)
    assert result.stderr == ""
    first, last = map(int, result.stdout.split())
    assert first == last == 12 + 30 * 3 + 10 and steps(tmp_path) == first
    rows = recorded(tmp_path).events.filter(kind="kernel", lens="wall")
    watched = rows.filter(name="embed").height
    assert 32 <= watched <= first
    for layer in range(3):
        assert (
            rows.filter(layer=layer, name="layer (own work)").height
            + rows.filter(layer=layer, name="layer").height
            == watched
        )
    facts = recorded(tmp_path).events.filter(kind="step").sort("t")
    assert (facts["shape"].cast(str) == "2x5").sum() == 10


def test_a_call_that_fails_is_no_step(tmp_path: Path) -> None:
    code = """
for _ in range(5):
    work(6)
    model.layers[2].fails = 2
    try:
        work(1)
    except ValueError:
        pass
    model.layers[2].fails = False
work(3)
"""
    assert run(MODEL + code, tmp_path).stderr == ""
    assert steps(tmp_path) == 12 + 5 * 6 + 3


def test_threads_that_begin_later_are_seen_from_their_first_call(tmp_path: Path) -> None:
    code = """
threads = [threading.Thread(target=work, args=(50,)) for _ in range(2)]
for thread in threads:
    thread.start()
work(50)
for thread in threads:
    thread.join()
work(50)
"""
    assert run(MODEL + code, tmp_path).stderr == ""
    assert steps(tmp_path) == 12 + 4 * 50
    tracks = recorded(tmp_path).events.filter(kind="step")["track"].cast(str).value_counts()
    assert sorted(tracks["count"]) in ([50, 50, 112], [100, 112]), "one may have begun as the other had ended"


@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize("function", ["enter_again", "leave_again", "match", "shorten", "restore"])
def test_a_signal_within_our_code_costs_two_steps_at_most(function: str, event: str, tmp_path: Path) -> None:
    """The one in progress, and the one before it, if that was not over."""
    interrupts = INTERRUPTS.format(file="record", function=function, event=event)
    result = run(MODEL + interrupts, tmp_path)
    assert (result.stdout, result.stderr) == ("interrupted\n" * 3, "")
    assert 12 + 3 * 4 + 20 - 3 <= steps(tmp_path) <= 12 + 3 * 5 + 20
    rows = recorded(tmp_path).events.filter(pl.col("step") >= 25, kind="kernel", lens="wall")
    assert rows.filter(name="unwatched (tracetui)").height or rows.filter(name="act").height


SEVERAL_INPUTS = """
import sys, torch
from torch import nn
class Cache:
    def __init__(self):
        self.length = 0
    def get_seq_length(self):
        return self.length
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
    def forward(self, ids, cache=None, scale=1.0, past_key_values=None):
        for each in (cache, past_key_values):
            if isinstance(each, Cache):
                each.length += ids.shape[1]
        return self.embed(ids) * scale
model, one = Model().eval(), torch.ones(1, 1, dtype=torch.long)
for _ in range(12):
    model(torch.ones(1, 3, dtype=torch.long))
call_form = sys.modules["_tracetui_capture.record.call_stack"].CallForm
match, repeats = call_form.match, []
call_form.match = lambda *inputs: repeats.append(match(*inputs)) or repeats[-1]
"""


@pytest.mark.parametrize(
    "inputs", ["one, [one]", "one, scale=2.0", "one, past_key_values=cache", "one, None"]
)
def test_a_call_with_inputs_after_the_tokens_is_one_of_a_form(inputs: str, tmp_path: Path) -> None:
    code = f"""
cache = Cache()
for _ in range(60):
    model({inputs})
print(sum(repeat is not None for repeat in repeats))
"""
    result = run(SEVERAL_INPUTS + code, tmp_path)
    assert int(result.stdout) >= 40 and steps(tmp_path) == 72
    assert result.stderr == ""
    last = recorded(tmp_path).events.filter(kind="step").sort("t").tail(60)
    assert last["phase"].cast(str).to_list() == ["decode"] * 60
    assert last["context"].to_list() == list(range(last["context"][0], last["context"][0] + 60))


@pytest.mark.parametrize("inputs", ["one, cache", "one, past_key_values=cache"])
def test_a_cache_in_place_of_none_is_another_form(inputs: str, tmp_path: Path) -> None:
    """What the cache holds is the context, from the first call that gets one."""
    code = f"""
for length in (None, 100, None, 400):
    cache = None
    if length is not None:
        cache = Cache()
        cache.length = length
    for _ in range(20):
        model({inputs})
"""
    assert run(SEVERAL_INPUTS + code, tmp_path).stderr == ""
    contexts = recorded(tmp_path).events.filter(kind="step").sort("t").tail(80)["context"].to_list()
    assert contexts[20:40] == list(range(101, 121)) and contexts[60:] == list(range(401, 421))


def test_token_ids_by_name_after_other_inputs_are_read_each_time(tmp_path: Path) -> None:
    """As of an encoder and decoder: the tokens are those of the decoder."""
    code = """
class Translator(Model):
    def forward(self, text, decoder_input_ids=None):
        return super().forward(decoder_input_ids)
translator = Translator().eval()
del model
for length in range(30):
    translator(one, decoder_input_ids=torch.ones(1, 5 + length, dtype=torch.long))
"""
    assert run(SEVERAL_INPUTS + code, tmp_path).stderr == ""
    contexts = recorded(tmp_path).events.filter(kind="step").sort("t").tail(29)["context"].to_list()
    assert contexts == list(range(6, 35))


def test_a_model_that_the_program_drops_is_gone(tmp_path: Path) -> None:
    code = """
work(50)
gone = weakref.ref(model)
del model
gc.collect()
print(gone() is None)
"""
    result = run(MODEL + code, tmp_path)
    assert (result.stdout, result.stderr) == ("True\n", "") and steps(tmp_path) == 62
    notes = next((tmp_path / "account").glob("process-*")).read_text()
    assert "seen 62 62 1" in notes and json.dumps("fault") not in notes


def test_the_first_step_has_the_time_that_the_recorder_takes_to_begin(tmp_path: Path) -> None:
    """The clock of a program has it, too, and its rows name it as ours."""
    model, call = MODEL.split("work(12)\n")
    slow = """
kind = next(each for name, each in sys.modules.items() if name.endswith(".program_recorder")).RecordedThreads
begin = kind._begin_thread
def begin_late(self, module):
    time.sleep(0.2)
    return begin(self, module)
kind._begin_thread = begin_late
at = time.perf_counter_ns()
work(1)
between = time.perf_counter_ns()
work(1)
print(between - at)
"""
    result = run(model + slow + call, tmp_path)
    assert result.stderr == ""
    events = recorded(tmp_path).events
    assert events.filter(kind="step", step=1)["dur"][0] >= 0.98 * int(result.stdout)
    assert events.filter(step=1, name=RECORDING_NAME)["dur"].sum() >= 200e6


def test_the_call_of_modules_is_pickled_as_it_is_alone(tmp_path: Path) -> None:
    code = """
import pickle
call = nn.Module.__call__
print(pickle.loads(pickle.dumps(call)) is call)
"""
    result = run(MODEL + code, tmp_path)
    assert (result.stdout, result.stderr) == ("True\n", "")
