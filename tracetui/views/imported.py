"""Import: what was read, kept, repaired and dropped."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui.look import Look
from tracetui.views import Answer, View

_SCHEMA = {
    "what": pl.String(),
    "severity": pl.String(),
    "count": pl.Int64(),
    "message": pl.String(),
    "offsets": pl.String(),
}


def imported(runs: Sequence[Run], look: Look) -> Answer:
    """Return four counts, then each notice with the first places where it was met."""
    log = runs[0].log
    sums = (("read", log.read), ("kept", log.kept), ("repaired", log.repaired), ("dropped", log.dropped))
    rows = [{"what": what, "count": count} for what, count in sums]
    rows += [
        {
            "what": n.id,
            "severity": n.severity,
            "count": n.count,
            "message": n.message,
            "offsets": ", ".join(map(str, n.offsets)) or None,
        }
        for n in log.notices
    ]
    notes = (f"{log.format or 'unknown format'} from {log.source or 'an unnamed source'}",)
    return Answer(pl.DataFrame(rows, schema=_SCHEMA), notes, key=("what",))


VIEW = View("import", "Import", imported, columns=("what", "count", "message", "severity", "offsets"))
