"""Inputs by number: the same seed and number always give the same input and ask the same of it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from capture.errors import CaptureError
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from tests.fuzz.case import examine, warm_up
from tests.fuzz.checks import BrokenRuleError, Outcome, fault
from tests.fuzz.corpus import Seed, by_loader, seeds
from tests.fuzz.mutate import damaged
from tests.fuzz.worker import STDERR_FILE, start_clock, stop_clock

WARMING: Final = ("native", "chrome.trace", "metallic.recording")  # loaders whose runs answer most views


class Inputs:
    """All inputs of one seed."""

    def __init__(self, seed: int, *, samples: bool) -> None:
        self._seed = seed
        self._seeds = by_loader(seeds(samples=samples))
        self._loaders = list(self._seeds)

    def warm_up(self, folder: Path) -> None:
        """Import all that cases need: read a seed of each loader, and ask everything of some runs."""
        for loader, own in self._seeds.items():
            path = folder / f"seed{own[0].suffix}"
            path.write_bytes(own[0].content)
            with contextlib.suppress(CaptureError):
                runs = load(path, cache=False, capture=NO_CAPTURE)
                if loader in WARMING:
                    warm_up(runs[0])

    def made(self, number: int) -> tuple[Seed, bytes]:
        """Return the seed of an input, the smaller of two that were drawn, and the input."""
        draw = Random(f"{self._seed}:{number}")
        friends = self._seeds[draw.choice(self._loaders)]
        seed = min(draw.choice(friends), draw.choice(friends), key=lambda seed: len(seed.content))
        return seed, damaged(seed, friends, draw)

    def run(self, number: int, folder: Path) -> tuple[str, Iterator[Outcome]]:
        """Return the loader of an input and how its cases end, each within the limits of the process."""
        seed, content = self.made(number)
        return seed.loader, self.examined(number, seed, content, folder, start_clock)

    def examined(
        self,
        number: int,
        seed: Seed,
        content: bytes,
        folder: Path,
        begin: Callable[[], None] = lambda: None,
    ) -> Iterator[Outcome]:
        """Yield how what is asked of an input ends; what a library prints meanwhile is a fault of it."""
        path = folder / f"input{seed.suffix}"
        path.write_bytes(content)
        printed = folder / STDERR_FILE
        for outcome in examine(path, Random(f"{self._seed}:{number}:asks"), begin):
            said = _taken(printed)
            if said and outcome.ended != "fault":
                error = BrokenRuleError(f"printed by a library: {said.strip()[:60]}")
                outcome = fault(error, outcome.answer, outcome.form)
            yield outcome
        stop_clock()


def _taken(printed: Path) -> str:
    """Return what stands in a file, and leave it empty."""
    if not printed.exists() or not printed.stat().st_size:
        return ""
    said = printed.read_bytes()[:500].decode(errors="replace")
    printed.write_bytes(b"")
    return said
