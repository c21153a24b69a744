"""Cases by number: the same seed and number always give the same input and ask the same of it."""

import contextlib
from pathlib import Path
from random import Random
from typing import Final

from capture.captures import NONE
from capture.errors import CaptureError
from capture.open import load
from tests.fuzz.case import BrokenRuleError, Outcome, examine, fault, warm_up
from tests.fuzz.corpus import Seed, by_loader, seeds
from tests.fuzz.mutate import damaged
from tests.fuzz.worker import STDERR_FILE, start_clock, stop_clock

WARMING: Final = ("native", "chrome.trace", "metallic.recording")  # loaders whose runs answer most views


class Inputs:
    """All cases of one seed."""

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
                runs = load(path, cache=False, capture=NONE)
                if loader in WARMING:
                    warm_up(runs[0])

    def made(self, number: int) -> tuple[Seed, bytes]:
        """Return what a case begins with, and its input."""
        draw = Random(f"{self._seed}:{number}")
        friends = self._seeds[draw.choice(self._loaders)]
        seed = draw.choice(friends)
        return seed, damaged(seed, friends, draw)

    def run(self, number: int, folder: Path) -> tuple[str, Outcome]:
        """Return the loader of a case and how it ended, within the limits of the process."""
        seed, content = self.made(number)
        return seed.loader, self.examined(number, seed, content, folder)

    def examined(self, number: int, seed: Seed, content: bytes, folder: Path) -> Outcome:
        """Return how an input ends with what a case asks of it."""
        path = folder / f"input{seed.suffix}"
        path.write_bytes(content)
        printed = folder / STDERR_FILE
        before = printed.stat().st_size if printed.exists() else 0
        start_clock()
        outcome = examine(path, Random(f"{self._seed}:{number}:asks"))
        stop_clock()
        if outcome.ended != "fault" and printed.exists() and printed.stat().st_size > before:
            with printed.open("rb") as file:
                file.seek(before)
                said = file.read(500).decode(errors="replace")
            return fault(BrokenRuleError(f"printed by a library: {said.strip()[:60]}"))
        return outcome
