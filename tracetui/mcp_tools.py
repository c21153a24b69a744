"""Read-only tools over the profiles of one folder, with bounded answers (MCP)."""

import json
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.clean_text import clean
from capture.errors import UsageError
from capture.load_runs import load, resolve_run_index
from capture.loaders import find_loaders
from capture.run import Run
from capture.source import Source
from tracetui.look import GROUPS, Look, parse_focus
from tracetui.report_formats import replace_non_finite
from tracetui.token_digest import DATA_WARNING, MIN_TOKENS, build_digest, estimate_tokens
from tracetui.views import Answer, View, ask, load_view, load_views, select_row_key, sort_answer

MAX_TOKENS: Final = 8000  # of an answer, whatever is requested
DEFAULT_TOKENS: Final = 1000
MAX_LISTED_FILES: Final = 200
_MAX_SCANNED_FILES: Final = 5000  # files of the folder
_SEARCHED_FIRST: Final = (
    ".json", ".jsonl", ".gz", ".csv", ".pb", ".sqlite", ".db", ".nsys-rep", ".pftrace", ".parquet",
)  # fmt: skip


class ProfileTools:
    """Questions about the profiles of a folder; each public method is an MCP tool of the same name."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def list_profiles(self) -> str:
        """List the profiles below the folder, newest first: path, format, size in bytes. `files_not_searched`
        counts files beyond a limit.
        """
        profiles = list[tuple[float, dict[str, Any]]]()
        files = sorted((path for path in self._root.rglob("*") if path.is_file()), key=_compute_search_key)
        for path in files[:_MAX_SCANNED_FILES]:
            is_inside = path.resolve().is_relative_to(self._root)
            if is_inside and (claims := find_loaders(Source.from_path(path).head, path.suffix)):
                name, status = clean(str(path.relative_to(self._root)), 4096), path.stat()
                entry = {"file": name, "format": claims[0].FORMAT, "bytes": status.st_size}
                profiles.append((status.st_mtime, entry))
        profiles.sort(key=itemgetter(0), reverse=True)
        unsearched = len(files) - _MAX_SCANNED_FILES
        content = {"profiles": [entry for _, entry in profiles[:MAX_LISTED_FILES]], "of": len(profiles)}
        content |= {"files_not_searched": unsearched} if unsearched > 0 else {}
        return _format_bounded(content, "profiles", MAX_TOKENS)

    def list_views(self) -> str:
        """List the views: name, title, number of files to compare."""
        files = ((view, 1 if view.run_count == 1 else 2) for view in load_views())
        return json.dumps({"views": [{"view": v.name, "title": v.title, "files": n} for v, n in files]})

    def digest(self, file: str, other: str = "", run: str = "", tokens: int = DEFAULT_TOKENS) -> str:
        """Summarise a profile: what it is, what to fix first, the most expensive kernels, missing data. With
        `other`: what changed from `file` to `other`, and with what certainty.
        """
        named = [clean(name, 4096) for name in (file, other) if name]
        of_file = load(self._place(file))
        runs = [of_file[resolve_run_index(of_file, run or None)], *([self._run(other, run)] if other else [])]
        names = [r.name for r in of_file]
        return build_digest(runs, named, _clamp_tokens(tokens), Look(full_names=True), names)

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
        tokens: int = DEFAULT_TOKENS,
    ) -> str:
        """Return the rows of a view (kernels, layers, steps, fix, growth …), as many as fit, with notes.

        Times are ns. `sort` is a column, `filter` a regular expression on names, `group` one of name, op,
        layer, phase, category, `focus` a row to enter, such as name=attention. A comparing view takes `other`
        as well, or the two runs of `file` if it holds two. `key` lists the columns that identify a row;
        unknown values are null.
        """
        chosen = load_view(name)
        _check_group(group)
        row = (parse_focus(focus),) if focus else ()
        look = Look(filter=filter, group=group or None, phase=phase or None, focus=row, full_names=True)
        if chosen.run_count > 1 and not other:
            runs = load(self._place(file))[:2]
        else:
            runs = [self._run(name, run) for name in ((file, other) if other else (file,))]
        answer = ask(chosen, runs, look)
        if sort and sort not in answer.rows.columns:
            columns = ", ".join(answer.rows.columns)
            raise UsageError(f"no column is called {sort!r}", todo=f"the columns are {columns}")
        return _format_view_answer(
            chosen, sort_answer(answer, Look(sort=sort or None)), _clamp_tokens(tokens)
        )

    def advice(self, file: str, run: str = "", tokens: int = DEFAULT_TOKENS) -> str:
        """List what to fix first: recoverable ns per step with evidence, confidence and what would refute it,
        ranked. The items and the row `bound` sum to the step time.
        """
        return self.view("fix", file, run=run, tokens=tokens)

    def _run(self, file: str, which: str) -> Run:
        runs = load(self._place(file))
        return runs[resolve_run_index(runs, which or None)]

    def _place(self, file: str) -> Path:
        """Return the path of a file below the folder; raise UsageError for any other path."""
        try:
            path = (self._root / file).resolve()
            is_inside = path.is_relative_to(self._root) and path.is_file()
        except (ValueError, OSError):  # a NUL in the name, or a name that is too long
            is_inside = False
        if not is_inside:
            todo = "list_profiles lists them"
            raise UsageError(f"{clean(file, 200)!r} is not a file below the folder", todo=todo)
        return path


def _check_group(group: str) -> None:
    if group and group not in GROUPS:
        raise UsageError(f"no group is called {clean(group, 100)!r}", todo=f"choose {', '.join(GROUPS)}")


def _compute_search_key(path: Path) -> tuple[bool, float]:
    """Return a key that sorts files with the suffix of a profile first, newest first."""
    try:
        return path.suffix not in _SEARCHED_FIRST, -path.stat().st_mtime
    except OSError:
        return True, 0.0


def _clamp_tokens(tokens: int) -> int:
    return max(MIN_TOKENS, min(MAX_TOKENS, tokens))


def _format_view_answer(view: View, answer: Answer, tokens: int) -> str:
    lists = [c for c, t in answer.rows.schema.items() if isinstance(t, pl.List)]
    rows = replace_non_finite(answer.rows.drop(lists))
    content = {
        "view": view.name,
        "key": list(select_row_key(view, answer)),
        "warning": DATA_WARNING,
        "notes": list(answer.notes),
        "rows_in_all": rows.height,
        "rows": rows.head(tokens).to_dicts(),  # a row has at least one token
    }
    return _format_bounded(content, "rows", tokens)


def _format_bounded(content: dict[str, Any], key: str, tokens: int) -> str:
    """Return `content` as JSON, with as many of the entries under `key` as fit into `tokens`."""
    dump = partial(json.dumps, ensure_ascii=True, default=str)
    remaining, fitting = tokens - estimate_tokens(dump({**content, key: []})), []
    for entry in content[key]:
        remaining -= estimate_tokens(dump(entry)) + 2
        if remaining < 0:
            break
        fitting.append(entry)
    return dump({**content, key: fitting})
