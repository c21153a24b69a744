"""The cases of one input: it is read once, then asked some views, each in every form, and exported.

A case is one damaged input through one answer in one form: the refusal or the account of its reading, a view
as a picture or in a format of reports, or an export that is read back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from capture.errors import CaptureError, UsageError
from capture.export_runs import WRITERS_BY_SUFFIX
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.run import Run
from tests.fuzz.checks import (
    ONE_LINE,
    BrokenRuleError,
    Outcome,
    check_accounts,
    check_export,
    check_picture,
    check_report,
    check_sentence,
    fault,
)
from tests.fuzz.hostile_values import cell
from tracetui.look import GROUPS, PERS, Look
from tracetui.report_formats import FORMATS, ReportContent, format_report
from tracetui.ui.question import Picture, Question, make_picture, strip_presentation
from tracetui.views import View, ask, find_focus, load_views, sort_answer
from tracetui.views.ink import DrawSize

ASKED: Final = 16  # views of an input
RARER: Final = {"diff": 0.2, "findings": 0.2, "summary": 0.3, "curves": 0.3, "timeline": 0.5, "tree": 0.5}
EXPORTED: Final = 0.3  # of the inputs


def warm_up(run: Run) -> None:
    """Ask all of a run once, so that every module is there before limits are set."""
    for view in load_views():
        runs = (run,) * min(view.run_count, 2)
        format_report(view, runs, Look(), "md")
        make_picture(Question(view, runs, tuple(range(len(runs))), Look()), Look(), DrawSize(80, 24))


def examine(path: Path, draw: Random, begin: Callable[[], None] = lambda: None) -> Iterator[Outcome]:
    """Yield how each case of a file ends; what is asked is drawn, and `begin` is called before each."""
    runs: list[Run] = []

    def read() -> None:
        runs.extend(load(path, cache=False, capture=NO_CAPTURE))
        check_accounts(runs)

    begin()
    outcome = _ended("load", "", read, path)
    yield outcome
    if outcome.ended != "answered":
        return
    for view in draw.sample(load_views(), ASKED):
        if draw.random() < RARER.get(view.name, 1):
            yield from _asked(view, runs, path, draw, begin)
    if draw.random() < EXPORTED:
        suffix = draw.choice((".jsonl", *WRITERS_BY_SUFFIX))
        begin()
        yield _ended("export", suffix, lambda: check_export(runs, path, suffix, draw), path)


def _ended(answer: str, form: str, do: Callable[[], None], path: Path) -> Outcome:
    """Return how one case ends: by its result, by a sentence, or by a fault."""
    try:
        try:
            do()
        except UsageError as e:
            if ONE_LINE.search(str(e)):
                raise BrokenRuleError("no clean sentence") from e
            return Outcome("refused", answer, form)
        except CaptureError as e:
            check_sentence(e, path)
            return Outcome("refused", answer, form)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a panic of polars is no Exception
        return fault(e, answer, form)
    return Outcome("answered", answer, form)


def _asked(
    view: View, runs: Sequence[Run], path: Path, draw: Random, begin: Callable[[], None]
) -> Iterator[Outcome]:
    """Yield how a view ends as a picture, again in another size and order, and in formats of reports."""
    chosen = _chosen(view, runs, draw)
    pictures: list[Picture] = []
    looks: list[Look] = []
    ascii = draw.random() < 0.2

    def paint() -> None:
        looks[:] = [_sorted(looks[0], pictures[0], draw)] if pictures else [_look(view, chosen, draw)]
        size = DrawSize(draw.choice((1, 20, 40, 80, 120, 300)), draw.choice((1, 5, 24, 60)), ascii=ascii)
        question = Question(view, tuple(chosen), tuple(range(len(chosen))), strip_presentation(looks[0]))
        pictures[:] = [make_picture(question, looks[0], size, *pictures)]
        check_picture(pictures[0], view)

    for form in ("picture", "again"):
        begin()
        outcome = _ended(view.name, form, paint, path)
        yield outcome
        if outcome.ended != "answered":
            return
    given, look = pictures[0].raw_answer, looks[0]
    width, cut = draw.choice(((120, False), (80, True), (20, True), (400, False)))
    formats = list(FORMATS) if given.rows.height else [draw.choice(list(FORMATS))]  # of few notes
    for format in formats:

        def write(format: str = format) -> None:
            content = ReportContent(view, runs, chosen, sort_answer(given, look), look, width, cut)
            check_report(FORMATS[format](content), view, format)

        begin()
        yield _ended(view.name, format, write, path)


def _sorted(look: Look, picture: Picture, draw: Random) -> Look:
    """Return the look with its rows in another order, every other time."""
    columns = picture.raw_answer.rows.columns
    if not columns or draw.random() < 0.5:
        return look
    return replace(look, sort=draw.choice(columns), descending=draw.random() < 0.5)


def _chosen(view: View, runs: Sequence[Run], draw: Random) -> list[Run]:
    if view.run_count == 1:
        return [draw.choice(runs)]
    return (
        [draw.choice(runs), draw.choice(runs)]
        if view.run_count == 2
        else [*runs, *runs][: draw.choice((2, 4))]
    )


def _look(view: View, runs: Sequence[Run], draw: Random) -> Look:
    """Return a look as keys and options make it; every other one is the plain one."""
    look = Look()
    if draw.random() < 0.5:
        return look
    steps = sorted((draw.randrange(-1, 6), draw.choice((0, 3, 1 << 62))))
    changes: dict[str, Any] = {
        "filter": draw.choice(("", "a", "^k", "(", cell(draw))),
        "group": draw.choice((None, *GROUPS)),
        "phase": draw.choice((None, "prefill", "decode", "forward", "nothing")),
        "lens": draw.choice((None, "gpu", "wall", "host", "wait")),
        "per": draw.choice(PERS),
        "window": (steps[0], steps[1]),
        "steady": True,
        "limit": draw.choice((0, 1, 3)),
        "descending": False,
        "full_names": True,
        "zoom": draw.choice(((0, 1), (0, 1 << 62), (5, 5), (-(1 << 62), 1 << 62))),
        "cursor": (draw.randrange(4), draw.randrange(40)),
    }
    look = replace(look, **{k: changes[k] for k in draw.sample(list(changes), draw.choice((1, 1, 2, 3)))})
    if draw.random() < 0.3:
        other = draw.choice([v for v in load_views() if v.run_count <= len(runs)])
        try:
            answer = ask(other, runs, look)
            focus = find_focus(other, answer, look)
        except UsageError:
            return look
        sort = draw.choice(answer.rows.columns) if answer.rows.columns else None
        look = replace(look, sort=sort, focus=focus)
    return look
