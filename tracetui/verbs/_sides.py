"""The two sides of a comparison as the command line names them: files, folders, repeats, identical runs."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from capture.errors import UsageError
from capture.run import Run
from tracetui.analysis.compare import recordings
from tracetui.analysis.select import total
from tracetui.chosen import choose
from tracetui.verbs import _shared


@dataclass(frozen=True, eq=False)
class Sides:
    """All runs that were read, the places of those on either side, and identical ones."""

    runs: list[Run]
    a: list[int]
    b: list[int]
    identical: recordings.Identical = recordings.NONE
    named: tuple[str, ...] = ()  # what was named more than once, or holds several runs

    @property
    def pair(self) -> tuple[int, int]:
        """Return the middle run of either side, which represents it where one run must."""
        return self._middle(self.a), self._middle(self.b)

    @property
    def more_a(self) -> tuple[Run, ...]:
        """Return the runs that repeat side a."""
        return (*self._others(self.a), *self.identical.of_a)

    @property
    def more_b(self) -> tuple[Run, ...]:
        """Return the runs that repeat side b."""
        return (*self._others(self.b), *self.identical.of_b)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was named twice or holds several runs, and what became of identical runs."""
        return (*self.named, *self.identical.notes)

    def _others(self, side: list[int]) -> tuple[Run, ...]:
        """Return the runs of a side that repeat its middle one."""
        return tuple(self.runs[i] for i in side if i not in self.pair)

    def _middle(self, places: list[int]) -> int:
        from tracetui.analysis.compare.repeats import middle

        return places[middle([total(self.runs[i]) or 0 for i in places])] if len(places) > 1 else places[0]


def sides_of(args: Namespace) -> Sides:
    """Return what is compared, each recording once on its side, and the identical runs behind --aa. Raise
    UsageError where a side has no run, or a run is on both.
    """
    named = _named(args)
    a, b = (_once(named.runs, side) for side in (named.a, named.b))
    on_a, on_b = ([named.runs[i] for i in side] for side in (a, b))
    for run in on_a:
        if len(on_a) + len(on_b) > 2 and recordings.among(run, on_b):
            raise UsageError(f"{recordings.file_label(run)} is on both sides", todo="name it on one of them")
    twice = tuple(
        f"{recordings.file_label(named.runs[i])} is named twice: counted once"
        for i in (*named.a, *named.b)
        if i not in (*a, *b)
    )
    identical = recordings.identical(on_a, on_b, [runs[0] for runs in _inputs(args, args.aa)])
    return replace(named, a=a, b=b, identical=identical, named=(*named.named, *twice))


def _once(runs: Sequence[Run], places: Sequence[int]) -> list[int]:
    return [places[i] for i in recordings.distinct([runs[p] for p in places])]


def _named(args: Namespace) -> Sides:
    """Return a file or folder and its --a against another and its --b; or two runs of the only file."""
    if len(args.files) > 2:
        todo = "tracetui compare FILE… puts many side by side; --a FILE… and --b FILE… take repeats of a side"
        raise UsageError("diff takes two inputs", todo=todo)
    first, second = [*args.files[:1], *args.a], [*args.files[1:], *args.b]
    if len(args.files) == 1 and not args.a and not args.b:
        return _of_one(args)
    if not first or not second:
        missing, option = ("second", "--b") if first else ("first", "--a")
        raise UsageError(f"the {missing} side has no file", todo=f"name one, or several behind {option}")
    runs: list[Run] = []
    places: tuple[list[int], list[int]] = ([], [])
    several: list[str] = []
    for side, files, which in (("a", first, args.run_a), ("b", second, args.run_b)):
        for loaded in _inputs(args, files):
            places["ab".index(side)].append(len(runs) + choose(loaded, which))
            runs += loaded
            if len(loaded) > 1 and which is None:
                several.append(_first_of(loaded, side))
    return Sides(runs, *places, named=tuple(several))


def _first_of(loaded: Sequence[Run], side: str) -> str:
    names = ", ".join(f"{i}: {r.name}" for i, r in enumerate(loaded, 1))
    file = recordings.file_label(loaded[0])
    return f"{file} holds {len(loaded)} runs ({names}): the first is compared; --run-{side} takes another"


def _inputs(args: Namespace, files: Sequence[str]) -> Iterator[list[Run]]:
    """Yield the runs of each file; a folder's files are repeats, unless they are the ranks of one run."""
    from capture.open import gather, load_all

    for file in files if args.merge else gather(files):
        yield load_all([file], **_shared.ways(args))


def _of_one(args: Namespace) -> Sides:
    from capture.open import load_all

    runs = load_all(args.files, **_shared.ways(args))
    if len(runs) < 2:
        raise UsageError(f"{args.files[0]} holds one run", todo="name a second file: tracetui diff A B")
    return Sides(runs, [choose(runs, args.run_a or "1")], [choose(runs, args.run_b or "2")])
