"""A recording of gemma-3-1b as the engine writes it, without the engine: the real plan, made-up times."""

from pathlib import Path
from random import Random

from capture.native.emit import Emitter, now
from engines.models.catalogue import find_preset
from engines.plan import StepLoad, plan_device_ops, plan_host_op

PERIOD_NS = 100_000_000  # ten steps a second
NOISE = 1 << 12


class Maker:
    """Writes step after step; attention grows with the context, as it does."""

    def __init__(self, path: Path, model: str = "gemma-3-1b") -> None:
        rows = plan_device_ops(find_preset(model), StepLoad(), ("argmax",))
        self.rows = (plan_host_op("callback"), *rows, plan_host_op("token_decode"))
        self.step = 0
        self._emitter = Emitter(path)
        self._emitter.run(model, {"model": model, "device": "made up", "weights": "random(0)"})
        self._emitter.plan(row.build_plan_entry(i) for i, row in enumerate(self.rows))
        self._share = PERIOD_NS * 9 // 10 // len(self.rows)
        self._grows = [row.op == "attn.core" for row in self.rows]
        rng = Random(7)
        self._noise = [rng.randrange(self._share // 2, self._share * 3 // 2) for _ in range(NOISE)]
        self._at = now()

    def write(self, at: int | None = None) -> None:
        """The next step, at a moment of the clock or right behind the last one."""
        t = begin = at or self._at
        offset = self.step * 7919 % (NOISE - len(self.rows))
        durations = self._noise[offset : offset + len(self.rows)]
        starts = []
        for i, grows in enumerate(self._grows):
            durations[i] += self.step * grows
            starts.append(t)
            t += durations[i]
        facts = {"step": self.step, "phase": "decode", "context": self.step + 1}
        self._emitter.mark(f" word{self.step % 997}", "text")
        self._emitter.columns(range(len(starts)), starts, durations, **facts)
        self._emitter.step(self.step, begin, t - begin, tokens=1, context=self.step + 1, batch=1)
        if self.step % 2 == 0:
            for i in range(20):
                self._emitter.counter(f"counter {i}", 40.0 + self.step * (i + 1) % 17, "%")
        self.step += 1
        self._at = begin + PERIOD_NS

    def flush(self) -> None:
        self._emitter.flush()

    def end(self) -> None:
        self._emitter.end()
