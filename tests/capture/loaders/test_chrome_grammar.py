"""Both readers of Chrome traces agree with a grammar that knows how many records it wrote."""

from pathlib import Path
from random import Random

import pytest

from tests.capture.loaders.chrome_grammar import Grammar, attack, check

INPUTS = 300


def test_readers_agree_with_the_count_of_the_grammar(tmp_path: Path) -> None:
    counts = attack(INPUTS, 1, 0, tmp_path)
    assert counts["both"] + counts["lenient only"] == INPUTS
    assert counts["both"] > INPUTS / 2


def test_a_lost_record_is_a_fault(tmp_path: Path) -> None:
    grammar, path = Grammar(Random(2)), tmp_path / "trace.json"
    path.write_bytes(grammar.write())
    check(path, grammar.written, as_run=True)
    grammar.written.others += 1
    with pytest.raises(AssertionError):
        check(path, grammar.written, as_run=True)
