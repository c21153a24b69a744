"""Column lines at once and one by one: the same runs with the same account, whatever the lines hold."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from capture.import_log import Log
from capture.native.assembler import Assembler
from capture.native.line_rows import decode_block
from capture.native.schema import seal_record
from capture.run import Run

PLAN = seal_record({
    "kind": "plan",
    "ops": [{"id": i, "name": f"op{i}", "layer": i, "lens": "gpu", "flops": [i, 2.0]} for i in (0, 1, 7)],
})  # fmt: skip
RANKED = seal_record({"kind": "plan", "rank": 1, "ops": [{"id": 0, "name": "other", "lens": "gpu"}]})
RUN = seal_record({"kind": "run", "schema": 1, "id": "a", "clock": [5, 1005]})
SECOND = seal_record({"kind": "run", "schema": 1, "id": "a", "rank": 1, "clock": [5, 5_000_000_005]})
STEP = seal_record({"kind": "step", "name": "step", "step": 1, "t": 3, "dur": 4})
NUMBER = st.one_of(
    st.integers(-2, 60_000), st.sampled_from([2**63 - 1, -(2**63), 2**63, 1.0, None, "1", True])
)
OP = st.sampled_from([0, 1, 7, 7, 3, -1])


@st.composite
def column_lines(draw: st.DrawFn) -> bytes:
    """Draw a line of events: mostly regular, else with a list that is not, or a broken checksum."""
    size = draw(st.integers(0, 4))
    record: dict[str, Any] = {
        "kind": "columns",
        "step": draw(st.integers(0, 9)),
        "t": draw(st.integers(0, 10**12)),
    }
    record |= {"phase": "decode", "context": draw(st.integers(0, 99))}
    record["op"] = draw(st.lists(OP, min_size=size, max_size=size))
    record["dt"] = draw(st.lists(st.integers(-5, 10**6), min_size=size, max_size=size))
    record["dur"] = draw(st.lists(st.integers(0, 60_000), min_size=size, max_size=size))
    odd = draw(
        st.sampled_from(["", "", "", "", "", "", "dur", "dt", "count", "no dt", "t", "rank", "key", "crc"])
    )
    if odd in ("dur", "dt", "count"):
        record[odd] = draw(st.lists(NUMBER, max_size=5))
    record.pop("dt" if odd == "no dt" else "t" if odd == "t" else "", None)
    record |= {"rank": 1} if odd == "rank" else {"unknown": 1} if odd == "key" else {}
    line = seal_record(record).rstrip()
    return line.replace(b'"step"', b'"stop"') if odd == "crc" else line


def runs_of(lines: list[bytes], few: int, newest: int | None = None) -> list[Run]:
    """Return the runs of some lines; those are taken at once whose bytes are more than `few`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("capture.native.assembler._MIN_BLOCK_BYTES", few)
        assembler = Assembler(Log(), "x", newest)
        assembler.feed(enumerate(lines))
        return assembler.build_runs()


def check_same(ours: list[Run], theirs: list[Run]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert_frame_equal(one.events, other.events, categorical_as_str=True)
        assert (one.log.read, one.log.dropped, one.meta) == (other.log.read, other.log.dropped, other.meta)
        assert {n.id: n.count for n in one.log.notices} == {n.id: n.count for n in other.log.notices}


@given(st.lists(st.one_of(column_lines(), st.sampled_from([PLAN, STEP, RUN, SECOND, RANKED])), max_size=9))
@example([b'{"kind":"columns","t":1,"op":[0,1],"dt":[1,2],"dur":[3,-4]}'] * 3)
@example([b'{"kind":"columns","t":1,"op":[0, 1],"dt":[1,2],"dur":[3,4]}'] * 2)
@example([b'{"kind":"columns","t":1,"op":[0],"dt":[1],"dur":[3-4]}'] * 2)
@pytest.mark.slow
def test_columns_are_the_same_at_once_and_one_by_one(lines: list[bytes]) -> None:
    whole = [RUN, PLAN, SECOND, RANKED, *lines]
    check_same(runs_of(whole, 0), runs_of(whole, 1 << 60))


def test_regular_lines_are_taken_at_once() -> None:
    """What an engine writes is a block, whose numbers are those of its JSON."""
    records = [
        {"kind": "columns", "t": 10 * i, "op": [0, 7], "dt": [i, 5], "dur": [2**40, i]} for i in range(3)
    ]
    lines = [seal_record(record).rstrip() for record in records]
    block = decode_block(lines)
    assert block is not None
    for name in ("op", "dt", "dur"):
        assert block.numbers[name].to_list() == [n for line in lines for n in json.loads(line)[name]]
    (run,) = runs_of([RUN, PLAN, *lines], 0)
    assert run.events["t"].to_list() == [10 * i + at for i in range(3) for at in (i, i + 5)]


@pytest.mark.parametrize("kinds", [1, 2, 7])
def test_lists_that_many_lines_have_are_read_as_each_is(kinds: int) -> None:
    dice = random.Random(kinds)
    plans = [[dice.randrange(9) for _ in range(dice.randint(1, 5))] for _ in range(kinds)]
    records: list[dict[str, Any]] = [
        {"kind": "columns", "t": i, "op": ops, "dt": [i] * len(ops), "dur": [2**40 + i] * len(ops)}
        for i in range(60)
        for ops in [dice.choice(plans)]
    ]
    block = decode_block([seal_record(record).rstrip() for record in records])
    assert block is not None
    for name in ("op", "dt", "dur"):
        assert block.numbers[name].to_list() == [n for record in records for n in record[name]]
    assert block.lengths.to_list() == [len(record["op"]) for record in records]


@pytest.mark.corpus
@pytest.mark.parametrize(
    "odd",
    ["[[1],2]", "[1,[2]]", '["1",2]', "[1.0,2]", "[1e1,2]", "[true,1]", "[null,1]", "[1,null]", "[]", "[1]",
     "[1,2,3]", "[9223372036854775808,1]", '{"a":1,"b":2}', "12345", "null", '"1,2"'],
)  # fmt: skip
@pytest.mark.parametrize("where", ["op", "dt", "dur"])
def test_what_is_no_list_of_whole_numbers_is_read_by_itself(odd: str, where: str) -> None:
    """Wherever it stands among regular lines, and whatever their numbers are."""
    regular = {"op": "[0,7]", "dt": "[1,2]", "dur": "[3,4]"}
    texts = [regular, regular | {where: odd}, {"op": "[0]", "dt": "[5]", "dur": "[6]"}]
    lines = [b'{"kind":"columns","t":1,%s}' % _members(lists) for lists in texts]
    for order in (lines, lines[::-1], lines[1:2] * 2):
        assert decode_block(order) is None
        check_same(runs_of([RUN, PLAN, *order], 0), runs_of([RUN, PLAN, *order], 1 << 60))


def _members(lists: dict[str, str]) -> bytes:
    return ",".join(f'"{name}":{text}' for name, text in lists.items()).encode()
