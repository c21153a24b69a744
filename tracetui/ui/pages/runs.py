"""The runs that are open and those that lie ready, as a table to choose from."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.places import baselines_folder
from capture.text import clean
from tracetui.ui.session import Session
from tracetui.views import Answer
from tracetui.views.diff import titles

COLUMNS: Final = (
    "run", "number", "shown", "model", "device", "dtype", "events", "steps", "tokens_per_s", "dropped",
    "changed", "bytes",
)  # fmt: skip
NOTES: Final = {
    "runs": "Enter shows a run, / takes a path of another, b pins a baseline; saved runs have no number",
    "against": "Enter compares with the run shown, / takes a path of another; saved runs have no number",
}


def answer(session: Session, files: Sequence[Path] = (), page: str = "runs") -> Answer:
    """One row a run, in the order of the files; then the saved ones."""
    told = titles(*session.runs)
    rows = [
        {
            "run": title,
            "number": i + 1,
            "shown": _sign(session, i),
            **{k: _text(run.meta.get(k)) for k in ("model", "device", "dtype")},
            "events": run.events.height,
            "steps": fact.step_count,
            "tokens_per_s": fact.tokens_per_s,
            "dropped": run.log.dropped,
            "source": run.log.source,
            "format": run.log.format,
        }
        for i, (run, fact, title) in enumerate(zip(session.runs, session.facts, told, strict=True))
    ]
    frame = pl.DataFrame([*rows, *(_saved(f) for f in files)], infer_schema_length=None)
    return Answer(frame, (NOTES[page],), ("number",))


def _saved(path: Path) -> dict[str, Any]:
    """A file that is not open: what its name and its date say."""
    baseline = path.parent == baselines_folder()
    name = f"baseline:{path.stem}" if baseline else path.stem
    try:
        about = path.stat()
    except OSError:
        return {"run": clean(name)}
    changed = datetime.fromtimestamp(about.st_mtime, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    return {"run": clean(name), "changed": changed, "bytes": about.st_size, "source": clean(str(path))}


def _sign(session: Session, place: int) -> str:
    signs = (("shown", session.current == place), ("baseline", session.baseline == place))
    return " ".join(word for word, holds in signs if holds)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
