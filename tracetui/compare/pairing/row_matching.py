"""Match the rows of two runs whose names may differ; every match reports how it was made.

Rows that the user linked come first. Also completes names that a source truncated, for tables of many runs.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from itertools import pairwise
from typing import Any, Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui.compare import params
from tracetui.compare.run_sides import read_file_name
from tracetui.look import RowLink

RowFields = Mapping[str, Any]  # name, op, layer, phase, category, shape, total_ns, rank …
MatchKey = Callable[[RowFields], Hashable | None]  # rows with an equal key are the same work; None: no key
# What compilers add to the name of a fused kernel, and its meaning
_FUSIONS: Final = (
    (re.compile(r"(?:fused_)?dequantize\d*_|\bdequant\+"), "dequantise fused"),
    (re.compile(r"_add\d+(?=_kernel|$)"), "residual add fused"),
)
_DECORATION: Final = re.compile(r"\bvoid |\bfused_|__+")
_HASH: Final = re.compile(r"(?<![0-9a-zA-Z])(?=[0-9a-f]*\d)[0-9a-f]{6,}(?![0-9a-zA-Z])")
_DIGITS: Final = re.compile(r"\d+")
_ELLIPSIS: Final = re.compile(r"(?:…|\.\.\.)(?: \[\d+\])?$")  # [2]: a source numbers equal truncated names
_ELLIPSIS_ENDINGS: Final = ("…", "...", "]")
_SECTION: Final = {"phase": pl.String(), "rank": pl.Int64()}  # rows of different sections are never matched
BY_HAND: Final = "linked by you"


@dataclass(frozen=True)
class RowMatch:
    """Rows of a and of b, by index, that are the same work; one side is empty for new and gone rows."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    how: str  # linked by you, exact, cut name, normalised, numbers aside, role, shape, category, new or gone


def match_rows(a: pl.DataFrame, b: pl.DataFrame, links: Mapping[str, str] | None = None) -> list[RowMatch]:
    """Match the rows of two tables (`name` and optional labels); each row is in exactly one match.

    Phases and ranks are never mixed. `links` maps names of a to names of b and takes precedence.
    """
    a, b = (_with_section(side) for side in (a, b))
    matches = _match_linked(a, b, links) if links else []
    matches += _match_exact(a, b, matches)
    left, right = _select_unmatched(a, [m.a for m in matches]), _select_unmatched(b, [m.b for m in matches])
    if left and right:
        for how, key in (("cut name", _build_completed_key(a, b)), *_UNIQUE_KEYS):
            matches += _match_unique(left, right, how, key)
        for how, key in _GROUP_KEYS:
            matches += _match_groups(left, right, how, key)
    matches += [RowMatch((), (j,), "new") for j in right]
    matches += [RowMatch((i,), (), "gone") for i in left]
    return matches


def normalise_name(name: str) -> str:
    """Strip template arguments, hashes and fusion marks from a kernel name."""
    for pattern, _ in _FUSIONS:
        name = pattern.sub("", name)
    name = _strip_brackets(name)
    return _HASH.sub("#", _DECORATION.sub("", name)).strip(" _")


def parse_fusions(name: str) -> tuple[str, ...]:
    """Parse from a kernel name what was fused into it."""
    return tuple(label for pattern, label in _FUSIONS if pattern.search(name))


def _strip_brackets(name: str) -> str:
    """Strip <…> and (…) at any depth; return an unbalanced name unchanged."""
    if name.count("<") != name.count(">") or name.count("(") != name.count(")"):
        return name
    depth, out = 0, []
    for char in name:
        depth += char in "<("
        if not depth:
            out.append(char)
        depth -= char in ">)"
    return "".join(out)


def _with_section(side: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of `_SECTION` that the table lacks, as nulls."""
    missing = {c: pl.lit(None, kind) for c, kind in _SECTION.items() if c not in side.columns}
    return side.with_columns(**missing)


def _select_section(row: RowFields) -> tuple[Any, ...]:
    return tuple(row[c] for c in _SECTION)


def _make_name_key(row: RowFields) -> Hashable:
    return normalise_name(row["name"]), _select_section(row)


def _make_numberless_key(row: RowFields) -> Hashable:
    return _DIGITS.sub("#", normalise_name(row["name"])), row.get("layer"), _select_section(row)


def _make_role_key(row: RowFields) -> Hashable | None:
    op = row.get("op")
    return (op, row.get("layer"), _select_section(row)) if op else None


def _make_shape_key(row: RowFields) -> Hashable | None:
    shape = row.get("shape")
    return (row.get("category"), row.get("op"), shape, _select_section(row)) if shape else None


def _make_category_key(row: RowFields) -> Hashable | None:
    category = row.get("category")
    return (category, row.get("layer"), _select_section(row)) if category and category != "other" else None


def _build_completed_key(a: pl.DataFrame, b: pl.DataFrame) -> MatchKey:
    """Build a key that is the complete form of a truncated name, or None if that is ambiguous."""
    names_by_section: dict[Any, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for i, side in enumerate((a, b)):
        for name, *section in side.select("name", *_SECTION).iter_rows():
            names_by_section[tuple(section)][i].append(name)
    complete = {section: complete_truncated(names) for section, names in names_by_section.items()}

    def make_completed_key(row: RowFields) -> Hashable | None:
        section = _select_section(row)
        name = complete[section].get(row["name"])
        return (name, section) if name else None

    return make_completed_key


_UNIQUE_KEYS: Final[tuple[tuple[str, MatchKey], ...]] = (
    ("normalised", _make_name_key),
    ("numbers aside", _make_numberless_key),
    ("role", _make_role_key),
    ("shape", _make_shape_key),
)


_GROUP_KEYS: Final[tuple[tuple[str, MatchKey], ...]] = (
    ("role", _make_role_key),
    ("shape", _make_shape_key),
    ("category", _make_category_key),
)


def _match_linked(a: pl.DataFrame, b: pl.DataFrame, links: Mapping[str, str]) -> list[RowMatch]:
    rows_b = {key: j for j, key in enumerate(b.select("name", *_SECTION).iter_rows())}
    matches = []
    for i, (name, *section) in enumerate(a.select("name", *_SECTION).iter_rows()):
        j = rows_b.pop((links.get(name), *section), None)
        if j is not None:
            matches.append(RowMatch((i,), (j,), BY_HAND))
    return matches


def _match_exact(a: pl.DataFrame, b: pl.DataFrame, linked: Sequence[RowMatch]) -> list[RowMatch]:
    """Match equal names that are unique on both sides, except rows that are linked."""
    key, linked_rows = ["name", *_SECTION], ([m.a[0] for m in linked], [m.b[0] for m in linked])
    left, right = (
        side.select(key).with_row_index(s).filter(~pl.col(s).is_in(rows)).unique(key, keep="none")
        for s, side, rows in zip("ab", (a, b), linked_rows, strict=True)
    )
    pairs = left.join(right, on=key, nulls_equal=True).select("a", "b").sort("a")
    return [RowMatch((i,), (j,), "exact") for i, j in pairs.iter_rows()]


def _select_unmatched(side: pl.DataFrame, matched: Sequence[Sequence[int]]) -> dict[int, RowFields]:
    """Select the rows that are in no match, by row index."""
    rows = sorted(set(range(side.height)).difference(*matched))
    return dict(zip(rows, side[rows].iter_rows(named=True), strict=True))


def _match_unique(
    left: dict[int, RowFields], right: dict[int, RowFields], how: str, key: MatchKey
) -> list[RowMatch]:
    """Match rows whose key is unique on both sides, and remove them from `left` and `right`."""
    if not left or not right:
        return []
    rows_a, rows_b = _group_by_key(left, key), _group_by_key(right, key)
    matches = []
    for k, rows in rows_a.items():
        partners = rows_b.get(k, [])
        if len(rows) == 1 and len(partners) == 1:
            matches.append(RowMatch((rows[0],), (partners[0],), how))
            del left[rows[0]], right[partners[0]]
    return matches


def _match_groups(
    left: dict[int, RowFields], right: dict[int, RowFields], how: str, key: MatchKey
) -> list[RowMatch]:
    """Match all rows of a key on one side with all of it on the other, and remove them from both."""
    rows_a, rows_b = _group_by_key(left, key), _group_by_key(right, key)
    matches = []
    for k in rows_a.keys() & rows_b.keys():
        matches.append(RowMatch(tuple(rows_a[k]), tuple(rows_b[k]), how))
        for i in rows_a[k]:
            del left[i]
        for j in rows_b[k]:
            del right[j]
    return sorted(matches, key=lambda m: m.a)


def _group_by_key(rows: Mapping[int, RowFields], key: MatchKey) -> dict[Hashable, list[int]]:
    index: dict[Hashable, list[int]] = defaultdict(list)
    for i, row in rows.items():
        k = key(row)
        if k is not None:
            index[k].append(i)
    return index


def complete_truncated(sources: Sequence[Collection[str]]) -> dict[str, str]:
    """Map each truncated name, and the names that complete it, to the longest form of that name.

    Names of one source are different kernels, so a name is mapped only if all that it can be, over all
    sources, is one name truncated at several lengths; an ambiguous name is left out.
    """
    stems = {name: strip_ellipsis(name) for names in sources for name in names}
    truncated = _find_truncated(stems)
    if not truncated:
        return {}
    candidates, sources_by_name = _find_candidates(stems, truncated), _index_sources(sources)
    unambiguous = {
        name for name in candidates if _is_one_name(name, candidates[name], stems, truncated, sources_by_name)
    }
    complete = {}
    for name in unambiguous:
        forms = [name, *(other for other in candidates[name] if other in unambiguous)]
        if len(forms) > 1:
            complete[name] = max(forms, key=lambda n: (len(stems[n]), n))
    return complete


def count_ambiguous(sources: Sequence[Collection[str]], completed: Mapping[str, str]) -> int:
    """Count truncated names that occur in one source only and that `completed` does not map."""
    sources_by_name = _index_sources(sources)
    return sum(
        len(places) == 1 and name not in completed and bool(_ELLIPSIS.search(name))
        for name, places in sources_by_name.items()
    )


def strip_ellipsis(name: str) -> str:
    """Strip the mark of a truncation; return a complete name unchanged."""
    return _ELLIPSIS.sub("", name) if name.endswith(_ELLIPSIS_ENDINGS) else name


def _find_truncated(stems: Mapping[str, str]) -> set[str]:
    """Find the truncated names that are still long enough to be recognised."""
    return {name for name, stem in stems.items() if stem != name and len(stem) >= params.MIN_STEM_LETTERS}


def _index_sources(sources: Sequence[Collection[str]]) -> dict[str, set[int]]:
    """Map each name to the indices of the sources that contain it."""
    sources_by_name: dict[str, set[int]] = defaultdict(set)
    for i, names in enumerate(sources):
        for name in names:
            sources_by_name[name].add(i)
    return sources_by_name


def _find_candidates(stems: Mapping[str, str], truncated: Collection[str]) -> dict[str, set[str]]:
    """Map each name to the others that it can be: one starts with the stem of the other."""
    names = sorted(stems, key=lambda n: stems[n])
    sorted_stems = [stems[n] for n in names]
    candidates: dict[str, set[str]] = defaultdict(set)
    for name in truncated:
        first = bisect_left(sorted_stems, stems[name])
        for other in names[first:]:
            if not stems[other].startswith(stems[name]):
                break
            if other != name:
                candidates[name].add(other)
                candidates[other].add(name)
    return candidates


def _is_one_name(
    name: str,
    candidates: Collection[str],
    stems: Mapping[str, str],
    truncated: Collection[str],
    sources_by_name: Mapping[str, Collection[int]],
) -> bool:
    """True if a name and its candidates can all be one name, of which no source has two forms."""
    forms = sorted((name, *candidates), key=lambda n: len(stems[n]))
    places = [place for form in forms for place in sources_by_name[form]]
    is_chain = all(a in truncated and stems[b].startswith(stems[a]) for a, b in pairwise(forms))
    return is_chain and len(places) == len(set(places))


def resolve_links(links: Iterable[RowLink], a: Run, b: Run) -> dict[str, str]:
    """Map rows of a to rows of b by the links whose file patterns match both runs, in either order."""
    file_a, file_b = read_file_name(a), read_file_name(b)
    rows: dict[str, str] = {}
    for link in links:
        if fnmatchcase(file_a, link.file_a) and fnmatchcase(file_b, link.file_b):
            rows[link.a] = link.b
        elif fnmatchcase(file_a, link.file_b) and fnmatchcase(file_b, link.file_a):
            rows[link.b] = link.a
    return rows


def make_link(a: Run, b: Run, name_a: str, name_b: str) -> RowLink:
    """Make a link between two rows that applies to the files of these two runs only."""
    return RowLink(name_a, name_b, escape(read_file_name(a)), escape(read_file_name(b)))


def remove_link(links: Iterable[RowLink], a: Run, b: Run, name_a: str, name_b: str) -> tuple[RowLink, ...]:
    """Remove the links that join these two rows."""
    return tuple(k for k in links if resolve_links([k], a, b) != {name_a: name_b})


def resolve_marked_names(
    rows: pl.DataFrame, named_by: Sequence[str], marked: Sequence[tuple[Any, ...]]
) -> tuple[str, str]:
    """Resolve two marked rows of a diff to a name in a and a name in b.

    Raise UsageError unless each has exactly one name on its side.
    """
    if len(marked) != 2:
        raise UsageError(f"{len(marked)} rows are marked", todo="mark two with m, then M links them")
    first, second = (_find_marked_row(rows, named_by, mark) for mark in marked)
    if not first["members_a"] or not second["members_b"]:
        first, second = second, first
    names = first["members_a"] or [], second["members_b"] or []
    for side, members in zip("ab", names, strict=True):
        if not members:
            raise UsageError(f"neither marked row is in {side}", todo="mark one row of each run")
    if any(len(members) > 1 for members in names):
        raise UsageError("a marked row combines several kernels", todo="only single rows can be linked")
    return str(names[0][0]), str(names[1][0])


def _find_marked_row(rows: pl.DataFrame, named_by: Sequence[str], mark: tuple[Any, ...]) -> dict[str, Any]:
    """Find the row of a mark; raise UsageError if the rows do not contain it."""
    keys = rows.select(named_by).rows()
    if tuple(mark) not in keys:
        raise UsageError("a marked row is filtered out", todo="clear the filter, or mark it again")
    return rows.row(keys.index(tuple(mark)), named=True)
