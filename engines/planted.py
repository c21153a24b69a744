"""Slow down single ops, so that a test can look for a regression that it knows."""

from collections.abc import Sequence
from typing import Final

from capture.errors import UsageError
from capture.native.emit import now
from engines.host.trace import Op
from engines.plan import Row

MOST: Final = 100.0


def with_slow_ops(
    ops: Sequence[Op], rows: Sequence[Row], slow: Sequence[tuple[str, float]]
) -> tuple[Op, ...]:
    """Return the ops, with those slowed down whose row has a name, role or scope of `slow`.

    Raise UsageError for a name that no row has.
    """
    changed = list(ops)
    for name, factor in slow:
        at = [i for i, row in enumerate(rows) if name in (row.name, row.op, row.scope)]
        if not at:
            raise UsageError(f"--slow: no op is called {name}")
        for i in at:
            changed[i] = slowed(changed[i], factor)
    return tuple(changed)


def slowed(op: Op, factor: float) -> Op:
    """Return the op made to take so many times as long."""

    def slow() -> None:
        start = now()
        op()
        until = start + int((now() - start) * min(factor, MOST))
        while now() < until:
            pass

    return slow
