"""Findings: a comparison in sentences."""

import textwrap
from collections.abc import Sequence

from capture.run import Run
from tracetui.look import Look
from tracetui.views import Answer, View, ink
from tracetui.views.diff import notes
from tracetui.views.ink import Line, Size

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
    """Return one sentence a row, the most important first."""
    from tracetui.analysis.compare.diff import diff  # numpy and scipy load with the first question
    from tracetui.analysis.compare.findings import findings

    compared = diff(runs[0], runs[1], look)
    return Answer(
        findings(runs[0], runs[1], compared, look), notes(runs[0], runs[1], compared, look), ("row",)
    )


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw each sentence, wrapped, beside its kind."""
    lines: list[Line] = []
    for kind, sentence, _ in answer.rows.iter_rows():
        first, *rest = textwrap.wrap(sentence, max(20, size.width - 17)) or [""]
        lines.append(ink.line((f"{kind:<15} ", _STYLES.get(kind, "title")), first))
        lines += [ink.line(" " * 16, part) for part in rest]
    return lines


VIEW = View("findings", "Findings", answer, draw, runs=2, row_key=())
