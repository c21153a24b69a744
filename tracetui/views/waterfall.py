"""Waterfall: where the difference of two runs went, exactly, bar by bar."""

from collections.abc import Sequence

from capture.run import Run
from tracetui import units
from tracetui.look import Look
from tracetui.views import Answer, View, ink
from tracetui.views.diff import notes
from tracetui.views.ink import Line, Size

GROUPS = ("op", "layer", "phase", "category")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    from tracetui.analysis.diff import diff  # numpy and scipy load with the first question
    from tracetui.analysis.waterfall import waterfall

    a, b = runs[0], runs[1]
    found = diff(a, b, look)
    by = look.group if look.group in GROUPS else "category"
    bars = waterfall(found.rows, by, found.gap_ns)
    total = int(bars["delta_ns"].sum())
    exact = f"the bars add up to {total:,} ns: Δcalls at the old time per call, Δtime per call, new, gone"
    return Answer(bars, (*notes(a, b, found), exact), (by,))


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """A line a bar: label, signed bar from the middle, the change."""
    rows = answer.rows
    by = answer.key[0]
    largest = max((abs(v) for v in rows["delta_ns"]), default=0) or 1
    label = min(28, max((len(str(v)) for v in rows[by]), default=1))
    half = max(4, (size.width - label - 16) // 2)
    lines = [ink.line((f"{by} ".ljust(label + half), "dim"), ("faster ◂ ▸ slower", "dim"))]
    for row in rows.head(max(1, size.height - 2)).iter_rows(named=True):
        value = row["delta_ns"]
        tone = ink.sign_tone(value)
        lines.append(
            ink.line(
                (ink.fit(str(row[by]), label, ascii=size.ascii) + " ", "name"),
                (ink.signed_bar(value / largest, 2 * half + 1, size.ascii), tone),
                (f" {_arrow(value)} {units.difference(value):>11}", tone),
            )
        )
    return lines


def _arrow(value: int) -> str:
    return "▲" if value > 0 else "▼" if value < 0 else " "


VIEW = View("waterfall", "Waterfall", answer, draw, needs=frozenset({"dur"}), runs=2)
