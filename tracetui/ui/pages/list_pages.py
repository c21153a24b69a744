"""Lists to choose from: the columns of a table, and the open and saved runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import polars as pl
from msgspec import Struct

from capture.clean_text import clean
from capture.files.user_dirs import find_baselines_folder
from tracetui import units
from tracetui.ui.session import Session
from tracetui.ui.sheet import Sheet
from tracetui.views import Answer
from tracetui.views.diff import build_titles

CHOICE_COLUMNS: Final = ("column", "place")
FITTING_ROW: Final = "as many as fit, by importance"
RUN_COLUMNS: Final = (
    "run", "number", "shown", "model", "device", "dtype", "events", "steps", "tokens_per_s", "dropped",
    "changed", "bytes",
)  # fmt: skip
HISTORY_COLUMNS: Final = (
    "row", "phase", "trend", "median_ns", "change_pct", "low_pct", "high_pct", "what", "since", "p",
    "runs_before", "runs_after", "source",
)  # fmt: skip
SHOW_NOTE: Final = "Enter shows a run, / opens a path, b sets the baseline; saved runs have no number"
COMPARE_NOTE: Final = "Enter compares with the current run, / opens a path; saved runs have no number"


class ColumnList(Struct, frozen=True):
    """The columns of a sheet, to choose and to order."""

    sheet: Sheet
    displayed: tuple[str, ...] = ()  # columns of the table, without the name, when the list was opened

    footer: ClassVar = "columns"
    columns: ClassVar = CHOICE_COLUMNS

    def answer(self, session: Session) -> Answer:
        """Return a row for each column; the first row undoes all choices."""
        chosen = self.sheet.resolve_columns(session.look.columns)
        positions = {name: f"{position}" for position, name in enumerate(chosen, 1)}
        rows = [(FITTING_ROW, "" if chosen else "yes")]
        rows += [(units.format_heading(name), positions.get(name, "")) for name in self._list_columns(chosen)]
        frame = pl.DataFrame(rows, schema=dict.fromkeys(CHOICE_COLUMNS, pl.String), orient="row")
        note = "Enter shows or hides a column, ← and → move it; Esc goes back to the table"
        return Answer(frame, (note,))

    def toggle_column(self, words: Sequence[str], row: int) -> tuple[str, ...]:
        """Return the chosen columns after Enter on a row."""
        if row == 0:
            return ()
        chosen = self.sheet.resolve_columns(words)
        name = self._list_columns(chosen)[row - 1]
        return tuple(c for c in chosen if c != name) if name in chosen else (*chosen, name)

    def move_column(self, words: Sequence[str], row: int, by: int) -> tuple[str, ...]:
        """Return the chosen columns (by default the displayed ones) with the column of a row moved."""
        name = self.find_column(words, row)
        chosen = list(self.sheet.resolve_columns(words) or self.sheet.resolve_columns(self.displayed))
        if name not in chosen:
            return tuple(words)
        index = chosen.index(name)
        chosen.insert(max(0, index + by), chosen.pop(index))
        return tuple(chosen)

    def find_column(self, words: Sequence[str], row: int) -> str:
        """Return the column of a row; empty for the first row."""
        return self._list_columns(self.sheet.resolve_columns(words))[row - 1] if row else ""

    def find_row(self, words: Sequence[str], name: str) -> int:
        """Return the row of a column, given the chosen ones."""
        others = self._list_columns(self.sheet.resolve_columns(words))
        return others.index(name) + 1 if name in others else 0

    def _list_columns(self, chosen: Sequence[str]) -> list[str]:
        """Return all columns but the name: the chosen ones, then the others by importance."""
        names = {c.name for c in self.sheet.columns[1:]}
        return [*chosen, *(n for n in self.sheet.rank if n in names and n not in chosen)]


class RunList(Struct, frozen=True):
    """Open and saved runs, to show one or to compare one with the current run."""

    compares: bool
    saved: tuple[Path, ...] = ()
    writer: str = ""  # state of the writer of the last run; empty: nobody writes it

    footer: ClassVar = "list"
    columns: ClassVar = RUN_COLUMNS

    def answer(self, session: Session) -> Answer:
        """Return a row for each open run, then one for each saved file."""
        names = build_titles(*session.runs)
        rows = [
            {
                "run": name,
                "number": i + 1,
                "shown": _describe_role(session, i, self.writer),
                **{k: _convert_to_text(run.meta.get(k)) for k in ("model", "device", "dtype")},
                "events": run.events.height,
                "steps": info.step_count,
                "tokens_per_s": info.tokens_per_s,
                "dropped": run.log.dropped,
                "source": run.log.source,
                "format": run.log.format,
            }
            for i, (run, info, name) in enumerate(zip(session.runs, session.infos, names, strict=True))
        ]
        frame = pl.DataFrame([*rows, *(_describe_saved_run(f) for f in self.saved)], infer_schema_length=None)
        return Answer(frame, (COMPARE_NOTE if self.compares else SHOW_NOTE,), ("number",))

    def find_first_row(self, session: Session) -> int:
        """Return the row of the cursor at first: of the current run, or of the one it is compared with."""
        others = [i for i in session.pair if i != session.current]
        return others[0] if self.compares and others else session.current


class RowHistory(Struct, frozen=True):
    """How a row changed over the runs in the log that are like the current one."""

    history: Answer  # of `load_history`

    footer: ClassVar = "history"
    columns: ClassVar = HISTORY_COLUMNS

    def answer(self, session: Session) -> Answer:
        """Return a row for each change, or one if there was none."""
        return self.history

    def find_source(self, row: int) -> str:
        """Return the name of the recording with which the change of a row begins; empty without a change."""
        return str(self.history.rows["source"][row] or "")


def _describe_saved_run(path: Path) -> dict[str, Any]:
    """Return the row of a saved file from its name, date and size, without opening it."""
    baseline = path.parent == find_baselines_folder()
    name = f"baseline:{path.stem}" if baseline else path.stem
    try:
        about = path.stat()
    except OSError:
        return {"run": clean(name)}
    changed = datetime.fromtimestamp(about.st_mtime, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    return {"run": clean(name), "changed": changed, "bytes": about.st_size, "source": clean(str(path))}


def _describe_role(session: Session, index: int, writer: str) -> str:
    words = {"shown": session.current, "baseline": session.baseline, writer: len(session.runs) - 1}
    return " ".join(word for word, i in words.items() if word and i == index)


def _convert_to_text(value: object) -> str | None:
    return None if value is None else str(value)
