"""One op of a simulated run, slowed down: first in the ledger with what was added; the replay takes it off.

What each step would have taken is known from the simulation alone.
"""

from collections.abc import Sequence

import pytest

from capture.run import Run
from tests.tracetui.simulated import Call, Join, Kernel, Wait, simulated
from tracetui.analysis.ledger.step_ledger import compute_ledger
from tracetui.analysis.ledger.what_if import Prediction, predict_changes
from tracetui.look import Look

US = 1_000
CLOSE = 0.02  # of what is known; the noise of 24 steps is well below
LAYERS = 6
BLOCK = (
    Kernel("norm", 20 * US), Kernel("attn.qkv", 60 * US), Kernel("attn.core", 90 * US),
    Kernel("attn.out", 40 * US), Kernel("mlp.gate_up", 120 * US), Kernel("mlp.down", 70 * US),
)  # fmt: skip
QUEUED: Sequence[Call] = (*LAYERS * BLOCK, Kernel("lm_head", 150 * US), Wait())
LATE: Sequence[Call] = (*LAYERS * [k._replace(host=400 * US) for k in BLOCK], Wait())
PARTLY_LATE: Sequence[Call] = (
    *5 * [Kernel("a", 40 * US, host=60 * US), Kernel("b", 30 * US, host=60 * US), Kernel("c", 200 * US)],
    Wait(),
)
READ_EACH_LAYER: Sequence[Call] = (*LAYERS * [*BLOCK, Wait()], Kernel("lm_head", 150 * US), Wait())
FREE: Sequence[Call] = (
    *LAYERS * [Kernel("a", 50 * US), Kernel("b", 60 * US), Kernel("side", 70 * US, stream=9)],
    Wait(),
)


def forked(side: int) -> Sequence[Call]:
    """Layers of which one kernel runs on a second stream, beside one of 100 µs, and is waited for."""
    layer = [
        Kernel("norm", 20 * US), Join(9, on=7), Kernel("shared", side * US, stream=9),
        Kernel("experts", 100 * US), Join(7, on=9), Kernel("combine", 30 * US),
    ]  # fmt: skip
    return (*LAYERS * layer, Wait())


PLANS = {
    "queued": QUEUED,
    "late": LATE,
    "partly late": PARTLY_LATE,
    "read each layer": READ_EACH_LAYER,
    "two streams": FREE,
    **{f"forked {side}": forked(side) for side in (30, 80, 95, 150)},
}
OPS = [
    (name, op)
    for name, plan in PLANS.items()
    for op in dict.fromkeys(k.op for k in plan if isinstance(k, Kernel))
]


def changed(run: Run, op: str, factor: float) -> Prediction:
    return predict_changes(run, Look(what_if=((op, factor),)))[0]


@pytest.mark.corpus
@pytest.mark.parametrize("factor", [2.0, 1.3])
@pytest.mark.parametrize(("plan", "op"), OPS)
def test_what_the_step_would_take_without_the_slowing(plan: str, op: str, factor: float) -> None:
    _, usual_ns = simulated(PLANS[plan], seed=1)
    slow, slow_ns = simulated(PLANS[plan], seed=2, slow={op: factor})
    actual = changed(slow, op, 1 / factor)
    assert actual.step_ns == pytest.approx(slow_ns, rel=1e-6)
    assert actual.predicted_ns == pytest.approx(usual_ns, rel=CLOSE)


@pytest.mark.corpus
@pytest.mark.parametrize(("plan", "op"), OPS)
def test_what_the_step_would_take_with_the_slowing(plan: str, op: str) -> None:
    usual, _ = simulated(PLANS[plan], seed=3)
    _, slow_ns = simulated(PLANS[plan], seed=4, slow={op: 2})
    assert changed(usual, op, 2).predicted_ns == pytest.approx(slow_ns, rel=CLOSE)


@pytest.mark.parametrize("op", [k.op for k in BLOCK[:-1]])
def test_under_a_late_host_a_faster_op_gives_nothing(op: str) -> None:
    """The host launches a kernel every 402 µs, none of which takes longer than 240."""
    slow, _ = simulated(LATE, seed=5, slow={op: 2})
    actual = changed(slow, op, 0.5)
    assert actual.saved_ns == 0 and actual.host_ns == actual.asked_ns > 0


def added_ns(plan: Sequence[Call], op: str, factor: float = 2) -> float:
    return sum(k.ns for k in plan if isinstance(k, Kernel) and k.op == op) * (factor - 1)


def of_the_ledger(run: Run, op: str) -> tuple[str, float]:
    """The op that leads the ledger of a run, and what is recoverable in an op, in ns a step."""
    book = compute_ledger(run, Look())
    assert book is not None and book.step_ns == book.bound_ns + book.items["recoverable_ns"].sum()
    rows = book.items.filter(op=op)["recoverable_ns"]
    return str(book.items["op"][0]), float(rows.sum()) / book.steps


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("plan", "op"),
    [
        *(("queued", op) for op in ("attn.qkv", "attn.core", "attn.out", "mlp.gate_up", "lm_head")),
        *(("read each layer", op) for op in ("attn.core", "mlp.down")),
        ("partly late", "c"),
        *(("two streams", op) for op in ("a", "b", "side")),
        *((f"forked {side}", "experts") for side in (30, 80, 95)),
        *((f"forked {side}", "shared") for side in (80, 95, 150)),
        ("forked 30", "combine"),
    ],
)  # fmt: skip
def test_the_slowed_op_leads_the_ledger_by_what_was_added(plan: str, op: str) -> None:
    """The kernels run at the roof but for their jitter, so that all above it was added."""
    slow, _ = simulated(PLANS[plan], seed=6, slow={op: 2})
    first, recoverable = of_the_ledger(slow, op)
    assert first == op
    assert recoverable == pytest.approx(added_ns(PLANS[plan], op), rel=CLOSE)


@pytest.mark.parametrize("op", ["attn.core", "mlp.down", "lm_head"])
def test_far_from_the_roof_the_ledger_grows_by_what_was_added(op: str) -> None:
    plan = [k._replace(roof=0.6) if isinstance(k, Kernel) else k for k in QUEUED]
    usual, slow = (simulated(plan, seed=7, slow=slow)[0] for slow in ({}, {op: 2}))
    before, after = (of_the_ledger(run, op)[1] for run in (usual, slow))
    assert after - before == pytest.approx(added_ns(plan, op), rel=CLOSE)


def test_what_a_step_does_not_wait_for_is_not_to_be_recovered() -> None:
    """A kernel of 60 µs beside one of 100: its step would not be shorter without it."""
    slow, slow_ns = simulated(forked(30), seed=8, slow={"shared": 2})
    assert slow_ns == pytest.approx(simulated(forked(30), seed=9)[1], rel=CLOSE)
    assert of_the_ledger(slow, "shared")[1] == 0


def test_a_join_that_nobody_recorded_is_seen_where_it_held_a_kernel_up() -> None:
    """Without the calls of the host only what held a kernel up is known: the slowed one did."""
    _, usual_ns = simulated(forked(150), seed=10)
    slow, _ = simulated(forked(150), seed=11, slow={"shared": 2})
    actual = slow.events["name"].cast(str)
    unseen = Run(slow.name, slow.meta, slow.events.filter(actual != "cudaStreamWaitEvent"), slow.log)
    assert changed(unseen, "shared", 0.5).predicted_ns == pytest.approx(usual_ns, rel=CLOSE)
