"""No record of a valid but extreme binary file is lost without being counted."""

from pathlib import Path
from random import Random

import pytest

from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from tests.capture.loaders._wire import message
from tests.capture.loaders.binary_grammar import KINDS, attack, check

INPUTS = 24


@pytest.mark.parametrize("kind", KINDS)
def test_loaders_agree_with_the_count_of_the_grammar(kind: str, tmp_path: Path) -> None:
    counts = attack(INPUTS, 1, 0, tmp_path, [kind])
    assert sum(counts.values()) == INPUTS and counts[f"{kind} read"] > INPUTS / 3


def test_a_record_that_is_lost_is_a_fault(tmp_path: Path) -> None:
    name, write = KINDS["perfetto"]
    written = write(Random(2), tmp_path / name)
    check(tmp_path / name, written)
    written.others += 1
    with pytest.raises(AssertionError, match="lost"):
        check(tmp_path / name, written)


def test_a_perfetto_instant_or_counter_without_a_time_is_counted(tmp_path: Path) -> None:
    begin, end, instant, counter = (message((9, kind), (11, 1), (23, "a")) for kind in (1, 2, 3, 4))
    header = message((9, 3), (11, 1), (23, "trace_metadata"))
    packets = [message((8, 5), (11, begin)), message((8, 9), (11, end))]
    packets += [message((11, event)) for event in (instant, counter, header)]
    packets.append(message((8, 9), (11, counter)))  # without a number
    path = tmp_path / "a.pftrace"
    path.write_bytes(message(*((1, packet) for packet in packets)))
    [run] = load(path, cache=False, capture=NO_CAPTURE)
    assert [(n.id, n.count) for n in run.log.notices if n.severity == "data_loss"] == [("no_time", 3)]
    assert run.log.dropped == 3
