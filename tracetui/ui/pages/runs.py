"""The runs that are open and those that are saved, as a table to choose from."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import polars as pl
from msgspec import Struct

from capture.places import baselines_folder
from capture.text import clean
from tracetui.ui.session import Session
from tracetui.views import Answer
from tracetui.views.diff import titles

COLUMNS: Final = (
    "run", "number", "shown", "model", "device", "dtype", "events", "steps", "tokens_per_s", "dropped",
    "changed", "bytes",
)  # fmt: skip
SHOW_NOTE: Final = (
    "Enter shows a run, / takes a path of another, b pins a baseline; saved runs have no number"
)
AGAINST_NOTE: Final = (
    "Enter compares with the run shown, / takes a path of another; saved runs have no number"
)


class RunList(Struct, frozen=True):
    """The page on which a run is chosen: to be shown, or to be compared with the one that is."""

    against: bool
    saved: tuple[Path, ...] = ()
    writer: str = ""  # what the head says of who writes the last run; empty where nobody does

    footer: ClassVar = "list"
    columns: ClassVar = COLUMNS

    def answer(self, session: Session) -> Answer:
        """Return a row for each run, in the order of the files; then one for each saved file."""
        names = titles(*session.runs)
        rows = [
            {
                "run": name,
                "number": i + 1,
                "shown": _marks(session, i, self.writer),
                **{k: _text(run.meta.get(k)) for k in ("model", "device", "dtype")},
                "events": run.events.height,
                "steps": info.step_count,
                "tokens_per_s": info.tokens_per_s,
                "dropped": run.log.dropped,
                "source": run.log.source,
                "format": run.log.format,
            }
            for i, (run, info, name) in enumerate(zip(session.runs, session.infos, names, strict=True))
        ]
        frame = pl.DataFrame([*rows, *(_saved_row(f) for f in self.saved)], infer_schema_length=None)
        return Answer(frame, (AGAINST_NOTE if self.against else SHOW_NOTE,), ("number",))

    def first_row(self, session: Session) -> int:
        """Return where the cursor begins: on the run shown, or on the one that it is compared with."""
        others = [i for i in session.pair if i != session.current]
        return others[0] if self.against and others else session.current


def _saved_row(path: Path) -> dict[str, Any]:
    """Return what the name and the date of a file say, without opening it."""
    baseline = path.parent == baselines_folder()
    name = f"baseline:{path.stem}" if baseline else path.stem
    try:
        about = path.stat()
    except OSError:
        return {"run": clean(name)}
    changed = datetime.fromtimestamp(about.st_mtime, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    return {"run": clean(name), "changed": changed, "bytes": about.st_size, "source": clean(str(path))}


def _marks(session: Session, index: int, writer: str) -> str:
    words = (
        ("shown", session.current == index),
        ("baseline", session.baseline == index),
        (writer, bool(writer) and index == len(session.runs) - 1),
    )
    return " ".join(word for word, holds in words if holds)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
