"""Which row each kernel of a replayed graph belongs to.

A captured step carries no annotations when it is replayed. Its kernels are known from one step that was
launched and watched: the i-th kernel of a replay is the i-th of that step, provided that the names agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from capture.record.kernels import Row as Kernel
from capture.record.kernels import Window


@dataclass(frozen=True)
class LaunchOrder:
    """The kernels of a step in their order: name, and the scope of the row that launched it."""

    kernels: tuple[tuple[str, str | None], ...]

    def assign_owners(self, replayed: Sequence[Kernel]) -> list[Kernel] | None:
        """Return the kernels of one replay with their owners; None where they are not those of this order.

        What a runtime puts before the first kernel of a graph has no owner.
        """
        extra = len(replayed) - len(self.kernels)
        if extra < 0 or any(
            k.name != name for k, (name, _) in zip(replayed[extra:], self.kernels, strict=True)
        ):
            return None
        owners = [None] * extra + [scope for _, scope in self.kernels]
        return [kernel._replace(owner=owner) for kernel, owner in zip(replayed, owners, strict=True)]


def launch_order(window: Window) -> LaunchOrder:
    """Return the order of a step that was launched kernel by kernel within a window."""
    on_gpu = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("start"))
    return LaunchOrder(tuple((k.name, k.owner) for k in on_gpu))


def with_owners(window: Window, order: LaunchOrder) -> Window:
    """Return the window with the owners of the kernels of every replay in it."""
    rows: list[Kernel] = []
    unknown = 0
    on_gpu = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("launch", "start"))
    for _, group in groupby(on_gpu, key=attrgetter("launch")):
        replayed = list(group)
        if len(replayed) == 1:  # a copy or a fill beside the graph
            rows += replayed
            continue
        owned = order.assign_owners(replayed)
        unknown += owned is None
        rows += owned or [kernel._replace(owner=None) for kernel in replayed]
    problems = dict(window.problems)
    if unknown:
        problems["replays whose kernels are not those of the step"] = unknown
    return Window(rows, problems)
