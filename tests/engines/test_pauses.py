"""What is done between two reports, by a played clock."""

from itertools import count
from types import SimpleNamespace

import pytest
import torch

from engines.host import idle_work

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    played = {"now": 0}
    for module in (idle_work, idle_work):
        monkeypatch.setattr(module, "now", lambda: played["now"])
    return played


def test_memory_is_read_again_in_the_pauses_of_a_run(
    monkeypatch: pytest.MonkeyPatch, clock: dict[str, int]
) -> None:
    """Passes of 4 pieces, 1, 2, 3 … ms each by a played clock: 0.4 % of the time. The first is not timed."""
    pieces = (ms * 1_000_000 for ms in count(1) for _ in range(4))
    actual: list[tuple[str, float, str]] = []

    def read(field: torch.Tensor) -> float:
        clock["now"] += next(pieces)
        return float(field.sum())

    emitter = SimpleNamespace(counter=lambda *facts: actual.append(facts))
    monkeypatch.setattr(idle_work, "sum_numbers", read)
    for name, value in {"WATCH_PIECE_NUMBERS": 250, "WATCH_NUMBERS": 1000, "UNTIMED_PIECES": 1}.items():
        monkeypatch.setattr(idle_work, name, value)
    monkeypatch.setattr(idle_work, "gather_into_pages", lambda tensors: iter(()))
    pause = idle_work.build_idle_work(emitter, CPU, is_bare=False)  # type: ignore[arg-type]
    taken = []
    for _ in range(100):  # steps of 0.1 s
        clock["now"] += 100_000_000
        taken.append(pause())
    # at 0.1 s, 1 s later, 2 s after that, 3 s after that: by then reading took 4, 12 and 24 ms
    assert [n for n, read in enumerate(taken) if read] == [0, 10, 30, 60]
    seconds = (0.003, 0.003 + 0.006, 0.003 + 0.006 + 0.009, 0.006 + 0.009 + 0.012)
    passes = (1, 2, 3, 3)
    assert actual == [
        ("memory_read", pytest.approx(3000 * many / took), "B/s")
        for many, took in zip(passes, seconds, strict=True)
    ]


def test_pages_are_gathered_one_at_a_time_and_then_no_more(
    monkeypatch: pytest.MonkeyPatch, clock: dict[str, int]
) -> None:
    """Pages of 3 ms beside steps of 10 ms: a tenth of the time is every third or fourth step."""

    def played(tensors: object) -> object:
        for _ in range(3):
            clock["now"] += 3_000_000
            yield

    monkeypatch.setattr(idle_work, "gather_into_pages", played)
    pause = idle_work.build_idle_work(SimpleNamespace(), CPU, is_bare=True)  # type: ignore[arg-type]
    taken = []
    for _ in range(20):
        clock["now"] += 10_000_000
        taken.append(pause())
    # at 10, 40 + 3 and 70 + 6 ms: the first look at 30 ms or more after the begin of the one before
    assert [n for n, took in enumerate(taken) if took] == [0, 3, 6]


@pytest.mark.parametrize("bare", [False, True])
def test_nothing_is_done_on_a_device_apart(bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_work, "sample_bandwidth", None)
    monkeypatch.setattr(idle_work, "gather_into_pages", None)
    assert idle_work.build_idle_work(SimpleNamespace(), torch.device("cuda"), is_bare=bare) is None  # type: ignore[arg-type]


def test_a_bare_run_takes_no_memory_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[object] = []
    monkeypatch.setattr(idle_work, "sample_bandwidth", None)
    monkeypatch.setattr(idle_work, "iter_weights", lambda: iter(["a matrix"]))
    monkeypatch.setattr(
        idle_work, "gather_into_pages", lambda tensors: iter(gathered.append(list(tensors)) or ())
    )
    assert not idle_work.build_idle_work(SimpleNamespace(), CPU, is_bare=True)()  # type: ignore[arg-type]
    assert gathered == [["a matrix"]]
