"""What an agent may ask of the profiles below one folder: read-only questions with bounded answers."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.errors import UsageError
from capture.loaders import recognise
from capture.open import load
from capture.run import Run
from capture.source import Source
from capture.text import clean
from tracetui.chosen import choose
from tracetui.digest import LEAST, WARNING, count_tokens, digest
from tracetui.look import Look, focus_of
from tracetui.report import finite
from tracetui.views import Answer, View, ask, ordered, row_key, view, views

MOST: Final = 8000  # tokens of an answer, whatever is asked
USUAL: Final = 1000
MOST_FILES: Final = 200  # that are listed
_LOOKED_INTO: Final = 5000  # files of the folder


class Tools:
    """Questions about the profiles below a folder; each is a tool of the same name."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def list_profiles(self) -> str:
        """List the profiles below the folder, the newest first: path, format, size in bytes."""
        found = []
        for path in sorted(self._root.rglob("*"), key=_age)[:_LOOKED_INTO]:
            inside = path.is_file() and path.resolve().is_relative_to(self._root)
            if inside and (claims := recognise(Source.of(path).head, path.suffix)):
                place = clean(str(path.relative_to(self._root)), 4096)
                found.append({"file": place, "format": claims[0].FORMAT, "bytes": path.stat().st_size})
        return _bounded({"profiles": found[:MOST_FILES], "of": len(found)}, "profiles", MOST)

    def list_views(self) -> str:
        """List the views: name, what it shows, how many files it compares."""
        known = [{"view": v.name, "title": v.title, "files": 1 if v.runs == 1 else 2} for v in views()]
        return json.dumps({"views": known})

    def digest(self, file: str, other: str = "", run: str = "", tokens: int = USUAL) -> str:
        """Say what a profile is, what to fix first, which kernels take the time and what the file cannot
        tell; with `other`, what changed from `file` to `other`, and how sure that is.
        """
        named = [clean(name, 4096) for name in (file, other) if name]
        of_file = load(self._place(file))
        runs = [of_file[choose(of_file, run or None)], *([self._run(other, run)] if other else [])]
        names = [r.name for r in of_file]
        return digest(runs, named, _room(tokens), Look(full_names=True), names)

    def view(
        self,
        name: str,
        file: str,
        other: str = "",
        run: str = "",
        sort: str = "",
        filter: str = "",
        group: str = "",
        phase: str = "",
        focus: str = "",
        tokens: int = USUAL,
    ) -> str:
        """Return the rows of a view (kernels, layers, steps, fix, growth …), as many as fit, with notes.

        Times are ns. `sort` is a column, `filter` a regular expression on names, `group` one of name, op,
        layer, phase, category, `focus` a row to enter, such as name=attention. A view that compares takes
        `other` as well, or the two runs of `file` where it holds two. `key` names the columns that tell rows
        apart; what is not known is null.
        """
        asked = view(name)
        look = Look(filter=filter, group=group or None, phase=phase or None, full_names=True)
        look = replace(look, focus=(focus_of(focus),) if focus else ())
        both = asked.runs > 1 and not other
        runs = load(self._place(file))[:2] if both else self._runs(file, other, run)
        answer = ask(asked, runs, look)
        if sort and sort not in answer.rows.columns:
            columns = ", ".join(answer.rows.columns)
            raise UsageError(f"no column is called {sort!r}", todo=f"the columns are {columns}")
        return _written(asked, ordered(answer, Look(sort=sort or None)), _room(tokens))

    def advice(self, file: str, run: str = "", tokens: int = USUAL) -> str:
        """Return what to fix first: recoverable ns a step with evidence, confidence and what could make it
        false, ranked; the step is its bound and these items.
        """
        return self.view("fix", file, run=run, tokens=tokens)

    def _runs(self, file: str, other: str, which: str) -> list[Run]:
        return [self._run(name, which) for name in (file, *([other] if other else []))]

    def _run(self, file: str, which: str) -> Run:
        runs = load(self._place(file))
        return runs[choose(runs, which or None)]

    def _place(self, file: str) -> Path:
        """Return the path of a file below the folder; raise UsageError for any other."""
        path = (self._root / file).resolve()
        if not path.is_relative_to(self._root) or not path.is_file():
            todo = "list_profiles names those that are"
            raise UsageError(f"{clean(file, 200)!r} is no file below the folder", todo=todo)
        return path


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


def _room(tokens: int) -> int:
    return max(LEAST, min(MOST, tokens))


def _written(asked: View, answer: Answer, tokens: int) -> str:
    """Return an answer as JSON with as many rows as fit."""
    rows = finite(answer.rows.drop(c for c, t in answer.rows.schema.items() if isinstance(t, pl.List)))
    content = {
        "view": asked.name,
        "key": list(row_key(asked, answer)),
        "warning": WARNING,
        "notes": list(answer.notes),
        "rows_in_all": rows.height,
        "rows": rows.head(tokens).to_dicts(),  # a row is more than one token
    }
    return _bounded(content, "rows", tokens)


def _bounded(content: dict[str, Any], key: str, tokens: int) -> str:
    """Return a document as JSON, with as many of the entries under `key` as so many tokens hold."""
    entries: Sequence[Any] = content[key]
    texts = [json.dumps(entry, ensure_ascii=True, default=str) for entry in entries]
    rest = json.dumps({**content, key: []}, ensure_ascii=True, default=str)
    left, most = tokens - count_tokens(rest), 0
    for text in texts:
        left -= count_tokens(text) + 2
        if left < 0:
            break
        most += 1
    return json.dumps({**content, key: list(entries[:most])}, ensure_ascii=True, default=str)
