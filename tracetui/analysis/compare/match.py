"""Match the rows of two runs whose names may differ; every match says how it was made."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tracetui.analysis.compare import truncated_names
from tracetui.analysis.compare.links import BY_HAND

Row = Mapping[str, Any]  # name, op, layer, phase, category, shape, total_ns, rank …

# what a compiler adds to a name when it fuses, and what it says about the row
_FUSIONS: Final = (
    (re.compile(r"(?:fused_)?dequantize\d*_|\bdequant\+"), "dequantise fused"),
    (re.compile(r"_add\d+(?=_kernel|$)"), "residual add fused"),
)
_DECORATION: Final = re.compile(r"\bvoid |\bfused_|__+")
_HASH: Final = re.compile(r"(?<![0-9a-zA-Z])(?=[0-9a-f]*\d)[0-9a-f]{6,}(?![0-9a-zA-Z])")
_DIGITS: Final = re.compile(r"\d+")
_PART: Final = {"phase": pl.String(), "rank": pl.Int64()}


@dataclass(frozen=True)
class Match:
    """Rows of a and of b that are the same work; one side empty: new or gone."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    how: str  # linked by you, exact, cut name, normalised, numbers aside, role, shape, category, new or gone


def match(a: pl.DataFrame, b: pl.DataFrame, links: Mapping[str, str] | None = None) -> list[Match]:
    """Return every row (`name`, and what else is known of it) of both sides in exactly one match; phases and
    ranks are never mixed.

    Most rows have a partner of the same name; only the others are looked at one by one.
    """
    a, b = (_with_part(side) for side in (a, b))
    matches = _linked(a, b, links) if links else []
    matches += _same(a, b, matches)
    left, right = _others(a, [m.a for m in matches]), _others(b, [m.b for m in matches])
    if left and right:
        for how, key in (("cut name", _completed(a, b)), *_WAYS):
            matches += _unique(left, right, how, key)
        for how, key in _GROUPS:
            matches += _grouped(left, right, how, key)
    matches += [Match((), (j,), "new") for j in right]
    matches += [Match((i,), (), "gone") for i in left]
    return matches


def plain_name(name: str) -> str:
    """Return a kernel's name without template arguments, hashes and what fusion added."""
    for pattern, _ in _FUSIONS:
        name = pattern.sub("", name)
    name = _without_brackets(name)
    return _HASH.sub("#", _DECORATION.sub("", name)).strip(" _")


def fusions(name: str) -> tuple[str, ...]:
    """Return what was fused into a kernel, as its name tells."""
    return tuple(label for pattern, label in _FUSIONS if pattern.search(name))


def _without_brackets(name: str) -> str:
    """Return the name without <…> and (…), however deeply nested; an unbalanced one as it is."""
    if name.count("<") != name.count(">") or name.count("(") != name.count(")"):
        return name
    depth, out = 0, []
    for char in name:
        depth += char in "<("
        if not depth:
            out.append(char)
        depth -= char in ">)"
    return "".join(out)


def _with_part(side: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the part of their run that each belongs to; null where that is not told."""
    unknown = {c: pl.lit(None, kind) for c, kind in _PART.items() if c not in side.columns}
    return side.with_columns(**unknown)


def _part(row: Row) -> tuple[Any, ...]:
    """Return the part of its run that a row belongs to."""
    return tuple(row[c] for c in _PART)


def _normalised(row: Row) -> Hashable:
    return plain_name(row["name"]), _part(row)


def _numberless(row: Row) -> Hashable:
    return _DIGITS.sub("#", plain_name(row["name"])), row.get("layer"), _part(row)


def _completed(a: pl.DataFrame, b: pl.DataFrame) -> "Key":
    """Return the longest form of a truncated name, where it can be no other."""
    sides: dict[Any, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for place, side in enumerate((a, b)):
        for name, *part in side.select("name", *_PART).iter_rows():
            sides[tuple(part)][place].append(name)
    longest = {part: truncated_names.completions(names) for part, names in sides.items()}

    def whole(row: Row) -> Hashable | None:
        """Return the whole name and the part; None for a name that nothing completes."""
        name = longest[_part(row)].get(row["name"])
        return (name, _part(row)) if name else None

    return whole


def _role(row: Row) -> Hashable | None:
    op = row.get("op")
    return (op, row.get("layer"), _part(row)) if op else None


def _shape(row: Row) -> Hashable | None:
    shape = row.get("shape")
    return (row.get("category"), row.get("op"), shape, _part(row)) if shape else None


def _category(row: Row) -> Hashable | None:
    category = row.get("category")
    category_name = category if category not in (None, "other") else None
    return (category_name, row.get("layer"), _part(row)) if category_name else None


Key = Callable[[Row], Hashable | None]
_WAYS: Final[tuple[tuple[str, Key], ...]] = (
    ("normalised", _normalised),
    ("numbers aside", _numberless),
    ("role", _role),
    ("shape", _shape),
)
_GROUPS: Final[tuple[tuple[str, Key], ...]] = (("role", _role), ("shape", _shape), ("category", _category))


def _linked(a: pl.DataFrame, b: pl.DataFrame, links: Mapping[str, str]) -> list[Match]:
    """Return the pairs that a person made by hand."""
    places = {key: j for j, key in enumerate(b.select("name", *_PART).iter_rows())}
    pairs = []
    for i, (name, *part) in enumerate(a.select("name", *_PART).iter_rows()):
        j = places.pop((links.get(name), *part), None)
        if j is not None:
            pairs.append(Match((i,), (j,), BY_HAND))
    return pairs


def _same(a: pl.DataFrame, b: pl.DataFrame, before: Sequence[Match]) -> list[Match]:
    """Return the pairs of one name that stands once on either side, without those matched before."""
    key, taken = ["name", *_PART], ([m.a[0] for m in before], [m.b[0] for m in before])
    left, right = (
        side.select(key).with_row_index(s).filter(~pl.col(s).is_in(own)).unique(key, keep="none")
        for s, side, own in zip("ab", (a, b), taken, strict=True)
    )
    pairs = left.join(right, on=key, nulls_equal=True).select("a", "b").sort("a")
    return [Match((i,), (j,), "exact") for i, j in pairs.iter_rows()]


def _others(side: pl.DataFrame, matched: Sequence[Sequence[int]]) -> dict[int, Row]:
    """Return the rows that are not matched yet, each by its place."""
    kept = sorted(set(range(side.height)).difference(*matched))
    return dict(zip(kept, side[kept].iter_rows(named=True), strict=True))


def _unique(left: dict[int, Row], right: dict[int, Row], how: str, key: Key) -> list[Match]:
    """Return the pairs whose key stands once on either side."""
    if not left or not right:
        return []
    there, here = _index(left, key), _index(right, key)
    pairs = []
    for k, rows in there.items():
        partners = here.get(k, [])
        if len(rows) == 1 and len(partners) == 1:
            pairs.append(Match((rows[0],), (partners[0],), how))
            del left[rows[0]], right[partners[0]]
    return pairs


def _grouped(left: dict[int, Row], right: dict[int, Row], how: str, key: Key) -> list[Match]:
    """Return matches of several rows of one role with several of the same role."""
    there, here = _index(left, key), _index(right, key)
    matches = []
    for k in there.keys() & here.keys():
        matches.append(Match(tuple(there[k]), tuple(here[k]), how))
        for i in there[k]:
            del left[i]
        for j in here[k]:
            del right[j]
    return sorted(matches, key=lambda m: m.a)


def _index(rows: Mapping[int, Row], key: Key) -> dict[Hashable, list[int]]:
    index: dict[Hashable, list[int]] = defaultdict(list)
    for i, row in rows.items():
        k = key(row)
        if k is not None:
            index[k].append(i)
    return index
