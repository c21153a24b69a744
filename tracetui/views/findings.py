"""Findings: a comparison in sentences."""

import textwrap
from collections.abc import Sequence

from capture.run import Run
from tracetui.look import Look
from tracetui.views import Answer, View, ink
from tracetui.views.diff import build_notes
from tracetui.views.ink import DrawSize, Line

_STYLES = {
    "slower": "bad",
    "faster": "good",
    "not comparable": "warn",
    "cause": "accent",
    "same work": "accent",
    "new": "warn",
    "gone": "warn",
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one sentence per row, the most important first."""
    from tracetui.compare.diff import compare_runs  # numpy and scipy load with the first question
    from tracetui.compare.words.change_findings import list_findings

    compared = compare_runs(runs, look)
    return Answer(list_findings(compared, look), build_notes(compared, look), ("row",))


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw each sentence, wrapped, next to its kind."""
    lines: list[Line] = []
    for kind, sentence, _ in answer.rows.iter_rows():
        first, *rest = textwrap.wrap(sentence, max(20, size.width - 17)) or [""]
        lines.append(ink.make_line((f"{kind:<15} ", _STYLES.get(kind, "title")), first))
        lines += [ink.make_line(" " * 16, part) for part in rest]
    return lines


VIEW = View("findings", "Findings", answer, draw, run_count=2, row_key=())
