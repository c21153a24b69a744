"""Steps are written together and numbered together; what is asked for in every step is remembered rightly."""

import gc
import json
import math
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from capture.native.schema import encode_json, is_intact, seal_record
from capture.record import process_recording as module
from capture.record.call_phases import CallFacts
from capture.record.call_stack import EndedStep
from capture.record.process_notes import NOTES_VARIABLE, RUN_VARIABLE, StepCounter
from capture.record.process_recording import ProcessRecording
from capture.record.profiler_windows import ProfilerWindow

PREFILL, DECODE = CallFacts("prefill", 1, 1, 4), CallFacts("decode", 1, 1, 5)
MS = 1_000_000


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path))
    monkeypatch.setenv("TRACETUI_OUT", str(tmp_path / "out.jsonl"))
    monkeypatch.setenv(RUN_VARIABLE, "")
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


def play(recording: ProcessRecording, start: int, facts: CallFacts, *, at_once: bool = False) -> None:
    recording.queue_step(
        EndedStep(start, 5, [], facts, None, "wall", ProfilerWindow([]) if at_once else None)
    )


def steps(folder: Path) -> list[tuple[int, int]]:
    """Return the numbers and starts of the steps that are in the file."""
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [(line["step"], line["t"]) for line in lines if line["kind"] == "step"]


def test_steps_wait_for_a_tenth_of_a_second_and_keep_their_order(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0]
    monkeypatch.setattr(module, "now", lambda: clock[0])
    recording = ProcessRecording()
    assert recording.open_as("played", dict)
    clock[0] = 100 * MS
    play(recording, 10, PREFILL)
    assert steps(account) == [(0, 10)]
    for number in range(1, 4):
        clock[0] = 100 * MS + number * 30 * MS
        play(recording, 10 + number, DECODE)
    assert steps(account) == [(0, 10)], "90 ms after the last write they wait"
    clock[0] = 200 * MS
    play(recording, 14, DECODE)
    assert steps(account) == [(0, 10), (1, 11), (2, 12), (3, 13), (4, 14)]
    play(recording, 15, DECODE)
    play(recording, 16, DECODE, at_once=True)
    assert steps(account)[5:] == [(5, 15), (6, 16)]
    play(recording, 17, DECODE)
    recording.close()
    assert steps(account)[7:] == [(7, 17)], "the end writes what waits"
    assert (account / "steps").stat().st_size == 7, "a prefill that comes first has number 0"
    assert "seen 8 0 1" in next(account.glob("process-*")).read_text()


def test_numbers_are_those_of_one_process_only(account: Path) -> None:
    one, other = StepCounter(shared=True), StepCounter(shared=True)
    one.reserve(3)
    assert [
        other.claim_number(),
        one.claim_number(),
        one.claim_number(),
        one.claim_number(),
        one.claim_number(),
        other.claim_number(),
    ] == [4, 1, 2, 3, 5, 6]
    alone = StepCounter(shared=False)
    alone.reserve(5)
    assert [alone.claim_number(), alone.claim_number()] == [1, 2]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"kind": "step", "name": 'a "quoted"\n\\ name', "step": 0, "t": -(2**70), "phase": None},
        {"é": "ü\u2028\ud800", "ok": True, "no": False, "small": 1e-7, "big": 1e300, "zero": -0.0},
        {"clock": (1, 2), "meta": {"argv": ["ä", None], "deep": [{"x": 1.5}]}},
    ],
)
def test_a_line_is_what_the_encoder_of_the_library_makes(record: dict[str, Any]) -> None:
    assert encode_json(record) == json.dumps(record, separators=(",", ":"))
    assert is_intact(seal_record(record))


def test_a_number_that_json_has_not_is_refused() -> None:
    for value in (math.nan, math.inf, [-math.inf]):
        with pytest.raises(ValueError, match="JSON"):
            seal_record({"value": value})


def test_a_layer_of_a_program_without_a_model_is_no_model() -> None:
    torch = pytest.importorskip("torch")
    from capture.record.process_recording import find_model_name

    own = type("Net", (torch.nn.Linear,), {"__module__": "program"})
    models = (
        torch.nn.Linear(2, 2),
        torch.nn.Embedding(2, 2),
        torch.nn.Sequential(torch.nn.Linear(2, 2)),
        own(2, 2),
    )
    assert [find_model_name(model) for model in models] == [None, None, "Sequential", "Net"]


def test_autograd_autocast_and_the_order_of_images_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from capture.record.process_recording import _read_work

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.Conv2d(4, 4, 3), torch.nn.Linear(2, 2))
    keys = ("autograd", "train mode", "autocast", "memory format")
    assert [_read_work(model, torch).get(key) for key in keys] == [True, True, "none", "channels first"]
    model = model.eval().to(memory_format=torch.channels_last)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        work = _read_work(model, torch)
    assert [work.get(key) for key in keys] == [False, False, "bfloat16", "channels last"]
    assert "memory format" not in _read_work(model[:1], torch), "one pixel lies in both orders"
    assert "memory format" not in _read_work(model[2], torch)


def test_the_device_is_that_of_the_first_parameter_as_it_is_now() -> None:
    torch = pytest.importorskip("torch")
    from capture.record.step_module import DeviceLookup

    device = DeviceLookup()
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2))
    assert [device.find_type(model), device.find_type(model)] == ["cpu", "cpu"]
    model.to("meta")
    assert device.find_type(model) == "meta"
    model[1].weight = torch.nn.Parameter(torch.zeros(2, 2))
    assert device.find_type(model) == "cpu"
    model[1].weight = None
    model[1].bias = torch.nn.Parameter(torch.zeros(2, device="meta"))
    assert device.find_type(model) == "meta"
    assert device.find_type(torch.nn.ReLU()) == "cpu"
    assert device.find_type(model) == "meta"
    gone = weakref.ref(model[1].bias)
    del model
    gc.collect()
    assert gone() is None, "it keeps nothing of the program's alive"


@pytest.mark.parametrize(("size", "rank"), [(2, 1), (1, None)])
def test_a_spawned_process_is_a_rank_of_its_group(
    account: Path, monkeypatch: pytest.MonkeyPatch, size: int, rank: int | None
) -> None:
    """As under torch.multiprocessing.spawn, which sets no environment variables."""
    group = ModuleType("torch.distributed")
    vars(group).update(is_initialized=lambda: True, get_world_size=lambda: size, get_rank=lambda: 1)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    recording = ProcessRecording()
    assert recording.open_as("played", dict)
    play(recording, 10, DECODE, at_once=True)
    recording.close()
    lines = [json.loads(line) for line in (account / "out.jsonl").read_text().splitlines()]
    assert {line.get("rank") for line in lines if line["kind"] == "step"} == {rank}
