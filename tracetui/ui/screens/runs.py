"""The runs that are open, as a table to choose from."""

import polars as pl

from tracetui.ui.session import Session
from tracetui.views import Answer

COLUMNS = ("run", "number", "shown", "model", "device", "dtype", "events", "steps", "tokens_per_s", "dropped")


def answer(session: Session) -> Answer:
    """One row a run, in the order of the files."""
    rows = [
        {
            "run": run.name,
            "number": i + 1,
            "shown": _sign(session, i),
            **{k: _text(run.meta.get(k)) for k in ("model", "device", "dtype")},
            "events": run.events.height,
            "steps": len(fact.steps),
            "tokens_per_s": fact.tokens_per_s,
            "dropped": run.log.dropped,
            "source": run.log.source,
            "format": run.log.format,
        }
        for i, (run, fact) in enumerate(zip(session.runs, session.facts, strict=True))
    ]
    return Answer(pl.DataFrame(rows), ("Enter shows a run, b makes the one shown the baseline",), ("number",))


def _sign(session: Session, place: int) -> str:
    signs = (("shown", session.current == place), ("baseline", session.baseline == place))
    return " ".join(word for word, holds in signs if holds)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
