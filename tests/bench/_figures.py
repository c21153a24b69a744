"""Every figure that is promised: which benchmark prints it, what it may be at most, and who is beside it.

A benchmark is one command; a figure is one line, which finds its number and its peer's in what that prints.
A limit of time is a multiple of the peer's, or of what this machine needs for the work of `_speed`.
"""

import re
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = r"([\d,]+(?:\.\d+)?)"


@dataclass(frozen=True)
class Bench:
    """A command of this repository, and the seconds that it takes on two cores."""

    words: tuple[str, ...]  # after `python -m`
    seconds: int


@dataclass(frozen=True)
class Figure:
    """One number: what it is, where it is printed, and what it must hold."""

    what: str
    bench: str
    own: str  # a pattern of what is printed; `#` is the number
    limit: float
    unit: str = "s"
    peer: str = ""  # the pattern of the peer's number, in the same run
    beside: str = ""  # who that is
    times: bool = False  # the limit is a multiple of the peer's number
    least: bool = False  # the limit is the least, not the most
    scaled: bool = False  # the limit is longer where the machine is slower

    def measured(self, printed: str, slowness: float = 1) -> "Measured":
        """Return the figure as it was printed, by a machine so many times slower than that of the limits."""
        peer = found(self.peer, printed) if self.peer else None
        return Measured(self, found(self.own, printed), peer, slowness if self.scaled else 1)


@dataclass(frozen=True)
class Measured:
    """A figure, and its numbers in one run; None where nothing was printed."""

    figure: Figure
    own: float | None
    peer: float | None
    slowness: float = 1

    @property
    def limit(self) -> float:
        return self.figure.limit * self.slowness

    @property
    def ratio(self) -> float | None:
        return self.own / self.peer if self.own is not None and self.peer else None

    @property
    def verdict(self) -> str:
        """Return `pass`, `FAIL`, or why neither can be said."""
        value = self.ratio if self.figure.times else self.own
        if self.own is None:
            return "not run"
        if value is None:
            return "no peer"
        holds = value >= self.limit if self.figure.least else value <= self.limit
        return "pass" if holds else "FAIL"


def found(pattern: str, printed: str) -> float | None:
    """Return the number at `#` where a pattern first fits; None where it fits nowhere."""
    match = re.search(pattern.replace("#", _NUMBER), printed, re.MULTILINE)
    return float(match[1].replace(",", "")) if match else None


BENCHES: Final[dict[str, Bench]] = {
    "tables": Bench(("tests.bench.tables", "--rounds", "3"), 60),
    "chrome": Bench(("tests.bench.chrome_trace", "--mb", "1000", "--rounds", "3"), 260),
    "metallic": Bench(("tests.bench.metallic", "--rounds", "7", "--skip", "pandas"), 30),
    "metallic, large": Bench(
        ("tests.bench.metallic", "--events", "5000000", "--rounds", "3", "--skip", "pandas"), 120
    ),
    "nsys": Bench(("tests.bench.nsys", "1000000"), 120),
    "native": Bench(("tests.bench.native", "--events", "5000000", "--rounds", "3"), 90),
    "views": Bench(("tests.bench.views",), 300),
    "tree": Bench(("tests.bench.tree",), 20),
    "diff": Bench(("tests.bench.diff", "2500000", "0"), 40),
    "cached": Bench(("tests.bench.cached",), 60),
    "startup": Bench(("tests.bench.startup", "9"), 45),
    "paint": Bench(("tests.bench.paint",), 20),
    "bytes": Bench(("tests.bench.bytes",), 30),
    "emit": Bench(("tests.bench.emit",), 15),
    "live": Bench(("tests.bench.live", "--views", "kernels", "--seconds", "15"), 110),
    "live_start": Bench(("tests.bench.live_start",), 60),
    "soak": Bench(("tests.bench.soak", "--steps", "100000"), 60),
    "kills": Bench(("tests.kills", "--kills", "20"), 60),
    "fuzz": Bench(("tests.fuzz", "--seconds", "60", "--jobs", "2", "--seed", "5"), 75),
}


def _rows(format: str) -> Figure:
    return Figure(
        "plain, JSON lines of 1 M rows" if format == "objects" else f"{format}, CSV of 1 M rows",
        "tables",
        rf"^{format} +[\d,]+ rows.*?: +# s",
        5,
        peer=rf"^{format} .*polars +#",
        beside="polars' own reader",
        times=True,
    )


def _layout(layout: str) -> Figure:
    table = rf"^{layout}: \d+ MB.*(?:\n.+)*?\n"
    return Figure(
        f"Chrome trace, {layout}",
        "chrome",
        rf"{table}ours +#",
        1.0,
        peer=rf"{table}msgspec into polars +#",
        beside="msgspec into polars",
        times=True,
    )


_TORCH: Final = r"^as torch prints it: \d+ MB.*(?:\n.+)*?\n"

FIGURES: Final[tuple[Figure, ...]] = (
    *map(_rows, ("plain", "objects", "rocprof", "nsys", "ncu")),
    Figure("Chrome trace of 1 GB", "chrome", rf"{_TORCH}ours +[\d.]+ +#", 3, "MB/s",
           rf"{_TORCH}msgspec into polars +[\d.]+ +#", "msgspec into polars", times=True, least=True),
    Figure("its peak memory, of the file", "chrome", rf"{_TORCH}ours +(?:[\d.]+ +){{5}}#", 1.1, "×"),
    *map(_layout, ("compact", "in one line", "indented")),
    Figure("metallic, 180 k events", "metallic", r"^tracetui +# s", 1, peer=r"^polars +# s",
           beside="polars scan_ndjson", times=True),
    Figure("metallic, 5 M events", "metallic, large", r"^tracetui +# s", 0.7,
           peer=r"^polars +# s", beside="polars scan_ndjson", times=True),
    Figure("nsys SQLite, the columns read", "nsys", r"^reading +# s", 1.1, peer=r"^plain +# s",
           beside="a plain SELECT", times=True),
    Figure("native lines, 5 M events", "native", r"^load +# s", 2, peer=r"^polars read_ndjson.*? +# s",
           beside="polars, lists only", times=True),
    Figure("answers of every view that take too long", "views", r"^# answers take too long", 0, ""),
    Figure("scope tree of 2 M kernels, by time", "tree", r"nested by time.*, # s CPU", 1.0, "s CPU",
           scaled=True),
    Figure("scope tree of 2 M kernels, as stated", "tree", r"stated paths.*, # s CPU", 1.0, "s CPU",
           scaled=True),
    Figure("diff of two runs of 2.5 M events", "diff", r"^diff, first table +# s", 10,
           peer=r"^peer: group_by name and step.*? # s", beside="group_by of both", times=True),
    Figure("first rows of a cached file of 1 GB", "cached", r"^first rows, cached +# s", 0.8,
           peer=r"^first rows, read +# s", beside="the first opening", times=True),
    Figure("first frame", "startup", r"^first frame +# s", 1.2, peer=r"^bare app.*? # s",
           beside="a bare Textual app with polars", times=True),
    Figure("first rows", "startup", r"^first rows +# s", 1.45, peer=r"^bare app.*? # s",
           beside="a bare Textual app with polars", times=True),
    Figure("a million rows painted", "paint", r"^show to painted +# ms", 50, "ms", scaled=True),
    Figure("a page of a million rows", "paint", r"^page to painted +# ms", 50, "ms", scaled=True),
    Figure("a cursor's move, to the terminal", "bytes", r"^cursor move +# bytes", 4000, "bytes"),
    Figure("a view switch, to the terminal", "bytes", r"^view switch +# bytes", 10_000, "bytes"),
    Figure("the largest view switch", "bytes", r"^largest view switch +# bytes", 20_000, "bytes"),
    Figure("an idle second, to the terminal", "bytes", r"^idle second +# bytes", 0, "bytes"),
    Figure("an event into the file", "emit", r"^Emitter\.columns, an event +# ns", 0.25, "ns",
           r"^peer: json\.dumps.*? # ns", "json.dumps", times=True),
    Figure("a screen at ten steps a second, of a core", "live", r"^kernels, 36,000 +# %", 10, "%",
           scaled=True),
    Figure("a step is seen, 95 of 100", "live", r"^kernels, 36,000 .* # ms +[\d.]+ s ", 400, "ms",
           scaled=True),
    Figure("the same after 36,000 steps as after 100", "live", r"^kernels, 36,000 +[\d.]+ % +#×", 1.25, "×"),
    Figure("first decode step of gemma-3-1b", "live_start", r"^first decode step +# s", 1.6,
           peer=r"^import torch \+ fill +# s", beside="importing torch and filling the weights", times=True),
    Figure("memory after 100 k steps, of that after 20 k", "soak", r"^#× the memory", 1.1, "×"),
    Figure("lost by a kill of the engine, at most", "kills", r"^engine +\d+ +# ms", 100, "ms",
           scaled=True),
    Figure("lost by a kill of the explorer, at most", "kills", r"^explorer +\d+ +# ms", 100, "ms",
           scaled=True),
    Figure("orphans after kills of the explorer", "kills", r"^explorer .* #$", 0, ""),
    Figure("kinds of faults in a minute of fuzzing", "fuzz", r"^# kinds of faults", 0, ""),
)  # fmt: skip
