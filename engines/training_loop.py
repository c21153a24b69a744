"""Training steps, written down phase by phase: a span for each phase, a row for each of its ops."""

from typing import Final

from capture.emit import Emitter, now
from engines.device import runner
from engines.trace import Ledger, Ticks
from engines.train import Trainer

WARM_UP: Final = 5


class Course:
    """Ties a trainer and the runners of its phases to an emitter."""

    def __init__(self, trainer: Trainer, emitter: Emitter, mode: str = "windows") -> None:
        self._trainer, self._emitter, self._ledger = trainer, emitter, Ledger(emitter)
        device = trainer.ids.device
        self._runners = [runner(p.ops, p.rows, device, mode) for p in trainer.phases]
        self._step = 0

    def warm_up(self, steps: int = WARM_UP) -> None:
        """Steps that are not written down."""
        for _ in range(steps):
            for each in self._runners:
                each.run(Ticks(now()))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._one()

    def _one(self) -> None:
        self._step += 1
        begin = now()
        ticks = [self._phase(number) for number in range(len(self._runners))]
        size, end = self._trainer.size, ticks[-1].end
        for number, clock in enumerate(ticks):
            self._write(number, clock)
        self._emitter.event(
            "step", "train", t=begin, dur=end - begin, step=self._step,
            tokens=size.tokens, context=size.context, batch=size.batch,
        )  # fmt: skip
        self._emitter.counter("loss", self._trainer.loss)

    def _phase(self, number: int) -> Ticks:
        ticks = Ticks(now())
        self._runners[number].run(ticks)
        return ticks

    def _write(self, number: int, ticks: Ticks) -> None:
        phase, each = self._trainer.phases[number], self._runners[number]
        facts = {"step": self._step, "phase": phase.name}
        begin = ticks.at[0]
        self._emitter.event("span", phase.name, t=begin, dur=ticks.end - begin, lens="wall", **facts)
        ticks.write(self._emitter, self._ledger.numbers(each.rows(phase.rows)), **facts)
        each.write(self._emitter, self._ledger.numbers, **facts)
