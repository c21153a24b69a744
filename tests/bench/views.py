"""Every view of runs of 2.5 million events, and of 20,000 names: no answer may take a second a run.

    python -m tests.bench.views [FILE …] [--events N] [--shapes chrome,names,…] [--views tree,summary,…]

Each answer is a first one: nothing is known yet of its run. It is timed as far as the lines of a screen, in
seconds of all processors (CPU) and of the clock (wall), beside one plain group_by of the same frame. It
passes where the smaller of both stays below its limit, which is longer on a slower machine.
"""

import argparse
import functools
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.load_runs import load
from capture.run import Run
from tests.bench._runs import SHAPES, changed, decode
from tests.bench._speed import measure_slowness
from tracetui.look import Look
from tracetui.ui.answer_updates import prepare_filters
from tracetui.ui.question import Picture, Question, make_picture, strip_presentation
from tracetui.views import View, load_view, load_views
from tracetui.views.ink import DrawSize

EVENTS: Final = 2_500_000
SCREEN: Final = DrawSize(120, 40)
AT_MOST: Final = 1.0  # seconds to an answer, for each run that it is about
AT_ONCE: Final = 0.1  # seconds to the same rows in another order, or fewer of them: at once, to a person
FURTHER: Final[dict[str, tuple[str, Look]]] = {  # other questions to some of the views
    "kernels per step": ("kernels", Look(per="step")),
    **{f"kernels by {group}": ("kernels", Look(group=group)) for group in ("op", "layer", "track", "step")},
    "kernels of steady steps": ("kernels", Look(steady=True)),
    "one op": ("kernels", Look(focus=(("op", "norm"),))),
    "detail of an op": ("detail", Look(focus=(("op", "norm"),))),
    "growth by op": ("growth", Look(group="op")),
    "fix by layer": ("fix", Look(group="layer")),
}


@dataclass(frozen=True)
class Taken:
    """The seconds that something took, of all processors and of the clock."""

    cpu: float
    wall: float

    @property
    def seconds(self) -> float:
        return min(self.cpu, self.wall)


def timed(what: Callable[[], Any]) -> tuple[Taken, Any]:
    """What it takes once, and what came of it."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = what()
    return Taken(time.process_time() - cpu, time.perf_counter() - wall), found


def fresh(runs: Sequence[Run]) -> list[Run]:
    """The same runs as if they had just been read: what was learnt of them, or of any name, is forgotten."""
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()
    return [replace(run) for run in runs]


def picture(shown: View, runs: Sequence[Run], look: Look, known: Picture | None = None) -> Picture:
    """What a screen shows of a view."""
    many = tuple(runs[: shown.run_count])
    return make_picture(
        Question(shown, many, tuple(range(len(many))), strip_presentation(look)), look, SCREEN, known
    )


def answers(runs: Sequence[Run], chosen: Sequence[str]) -> Iterator[tuple[str, Taken, float]]:
    """Each answer by its name, with what it took and what it may take."""
    questions = {v.name: (v.name, Look()) for v in load_views()} | FURTHER
    for name, (of, look) in questions.items():
        if chosen and name not in chosen:
            continue
        shown, new = load_view(of), fresh(runs)
        taken, found = timed(lambda s=shown, r=new, k=look: picture(s, r, k))
        if found.answer.missing and found.answer.rows.is_empty():
            continue  # there is nothing to answer from
        yield name, taken, AT_MOST * min(shown.run_count or 1, len(runs))
        if name == "kernels":
            yield from _again(shown, new, found)


def _again(shown: View, runs: Sequence[Run], known: Picture) -> Iterator[tuple[str, Taken, float]]:
    """The table in another order, and through a filter that is typed letter by letter."""
    for column in ("total_ns", "name"):
        look = Look(sort=column, descending=False)
        taken, _ = timed(lambda k=look: picture(shown, runs, k, known))
        yield f"kernels sorted by {column}", taken, AT_ONCE
    question = Question(shown, tuple(runs[:1]), (0,), Look())
    yield "names, before a filter asks", timed(lambda: prepare_filters(question))[0], AT_MOST
    for pattern in ("k", "ke", "kernel_1", "kernel_0[1-5]"):
        taken, _ = timed(lambda p=pattern: picture(shown, runs, Look(filter=p)))
        yield f"kernels filtered by {pattern}", taken, AT_ONCE


def plain(run: Run) -> Taken:
    """What polars takes for one plain grouping of the same frame."""
    sums = run.events.lazy().group_by("name").agg(pl.col("dur").sum(), pl.len())
    return min((timed(sums.collect)[0] for _ in range(3)), key=lambda taken: taken.cpu)


def measure(name: str, run: Run, chosen: Sequence[str]) -> int:
    """Print what each answer about a run takes; return how many take too long."""
    size, names = run.events.estimated_size() / 1e6, run.events["name"].n_unique()
    print(f"\n{name}: {run.events.height:,} events, {names:,} names, frame {size:.0f} MB")
    peer, slowness, late = plain(run), measure_slowness(), 0
    print(f"  {'peer: one plain group_by':34}{peer.cpu:8.3f}{peer.wall:9.3f}   limits × {slowness:.2f}")
    runs = [run, changed(run)]
    for what, taken, limit in answers(runs, chosen):
        holds = taken.seconds <= limit * slowness
        late += not holds
        verdict = "pass" if holds else "FAIL"
        ratio, load = taken.cpu / peer.cpu, os.getloadavg()[0]
        print(f"  {what:34}{taken.cpu:8.3f}{taken.wall:9.3f}{ratio:8.1f}× {verdict}{load:7.1f}", flush=True)
    return late


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="also files of your own")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="of %(default)s")
    parser.add_argument("--views", default="", help="names of views; else all")
    args = parser.parse_args()
    chosen = args.views.split(",") if args.views else []
    made = {name: functools.partial(SHAPES[name], args.events) for name in args.shapes.split(",") if name}
    read = {str(path): functools.partial(_read, path) for path in args.files}
    print(
        f"{'':36}{'CPU s':>8}{'wall s':>9}{'of peer':>9}{'':6}{'load':>6}   {pl.thread_pool_size()} threads"
    )
    for _ in answers([decode(1000)] * 2, chosen):
        pass  # now all is imported
    late = sum(measure(name, make(), chosen) for name, make in (made | read).items())
    print(f"\n{late} answers take too long")
    return 1 if late else 0


def _read(path: Path) -> Run:
    return load(path, cache=False)[0]


if __name__ == "__main__":
    raise SystemExit(main())
