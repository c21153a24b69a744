"""What was done so far: cases by loader, answer and form, and faults; a later run goes on from its file."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

ENDS: Final = ("answered", "refused", "fault")
FACETS: Final = ("loader", "answer", "form")


@dataclass
class Fault:
    """One kind of fault, and the first input that showed it."""

    place: str
    loader: str
    input: int
    details: str
    count: int = 0


@dataclass
class Tally:
    """The account of one seed."""

    seed: int
    first: int = 0  # the number of the input to go on with
    inputs: int = 0
    seconds: float = 0.0  # of the clock, of all runs together
    slow: int = 0  # inputs that took too long once
    counts: Counter[str] = field(default_factory=Counter)  # by `LOADER ANSWER FORM END`
    faults: dict[str, Fault] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        return self.counts.total()

    def count(self, fault: Fault) -> bool:
        """Add a fault and return whether it is the first of its kind."""
        known = self.faults.setdefault(fault.place, fault)
        known.count += 1
        return known.count == 1

    def save(self, path: Path) -> None:
        """Write the account into a file, whole or not at all."""
        beside = path.with_name(f"{path.name}.new")
        faults = {place: asdict(fault) for place, fault in self.faults.items()}
        beside.write_text(json.dumps({**vars(self), "faults": faults}, indent=1))
        beside.replace(path)

    def table(self) -> str:
        """Return cases a loader, an answer and a form, and each fault with how often it was met."""
        lines: list[str] = []
        for place, facet in enumerate(FACETS):
            lines += ["", f"{facet:24}{'cases':>11}{'answered':>11}{'refused':>10}{'faults':>8}"]
            for name in sorted({key.split()[place] for key in self.counts}):
                ends = [self._sum(place, name, end) for end in ENDS]
                lines.append(f"{name:24}{sum(ends):11,}{ends[0]:11,}{ends[1]:10,}{ends[2]:8,}")
        each = self.cases / max(self.seconds, 1e-9)
        lines += [
            "",
            f"{self.cases:,} cases of {self.inputs:,} inputs in {self.seconds:,.0f} s, {each:.0f} a second",
        ]
        lines.append(f"{self.slow} times an input took too long and was tried once more")
        lines.append(f"{len(self.faults)} kinds of faults")
        lines += [f"  {f.count:5} × {f.place} (input {self.seed}:{f.input})" for f in self.faults.values()]
        return "\n".join(lines[1:])

    def _sum(self, place: int, name: str, end: str) -> int:
        split = ((key.split(), count) for key, count in self.counts.items())
        return sum(count for words, count in split if words[place] == name and words[3] == end)


def begun(path: Path | None, seed: int, first: int) -> Tally:
    """Return the account that a file holds, or an empty one; the file's own seed is the one that counts."""
    if path is None or not path.exists():
        return Tally(seed, first)
    known = json.loads(path.read_text())
    faults = {place: Fault(**fault) for place, fault in known.pop("faults").items()}
    return Tally(**{**known, "counts": Counter(known["counts"])}, faults=faults)
