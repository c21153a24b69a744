"""Changes of JSON documents: types, members, places, keys twice, tokens; and how documents are written."""

import copy
import json
import re
from random import Random
from typing import Any, Final

from tests.fuzz.hostile_values import TOKENS, cell, number, scalar, word

MARK: Final = "\ue000token\ue000"  # stands in a value for a token that is no JSON
KEYS: Final = ("", "name", "ph", "ts", "dur", "cat", "args", "id", "file", "kind", "step", "a.b", "\ud800")

_EDGE: Final = r"(?:\\ue000|\ue000)token(?:\\ue000|\ue000)"
_TOKEN: Final = re.compile(rf'"{_EDGE}((?:[^"\\]|\\.)*?){_EDGE}"')

Place = tuple[Any, Any]  # a list or an object, and where in it


def places(value: Any) -> list[Place]:
    """Return every place in a document that holds a value."""
    found: list[Place] = []
    waiting = [value]
    while waiting:
        at = waiting.pop()
        inner = (
            list(at.items()) if isinstance(at, dict) else list(enumerate(at)) if isinstance(at, list) else []
        )
        found += [(at, key) for key, _ in inner]
        waiting += [child for _, child in inner if isinstance(child, dict | list)]
    return found


def changed(value: Any, draw: Random, other: Any = None) -> Any:
    """Return a document with one change; `other` is one from which pieces may come. The first is used up."""
    found = places(value)
    if not found or draw.random() < 0.01:
        return scalar(draw)
    at, key = draw.choice(found)
    _change(at, key, draw, found if other is None or draw.random() < 0.7 else places(other) or found)
    return value


def _change(at: Any, key: Any, draw: Random, donors: list[Place]) -> None:
    """Change what stands at a place, or the place itself."""
    old = at[key]
    match draw.randrange(12):
        case 0 | 1 | 2:
            at[key] = scalar(draw)
        case 3:
            at[key] = _other_type(old, draw)
        case 4:
            del at[key]
        case 5:
            box, inside = draw.choice(donors)
            at[key] = copy.deepcopy(box[inside])
        case 6:
            at[key] = MARK + draw.choice(TOKENS) + MARK
        case 7:
            at[key] = _deep(old, draw)
        case 8:
            at[key] = _near(old, draw)
        case 9 | 10:
            _move(at, key, draw)
        case _:
            _everywhere(at, key, draw, donors)


def _other_type(old: Any, draw: Random) -> Any:
    """Return a value in another type: a number as text, an object as the list of its values."""
    match old:
        case bool() | None:
            return draw.choice((0, 1, "true", "null", ""))
        case int() | float():
            return draw.choice(
                (str(old), [old], {"value": old}, float(old) if abs(old) < 1e300 else 0.0, bool(old))
            )
        case str():
            return draw.choice(
                (len(old), [old], {"name": old}, list(old[:20]), old.encode().hex()[:50], None)
            )
        case dict():
            return draw.choice((list(old.values()), list(old), [old], str(old)[:200], None))
    return draw.choice(
        ({str(i): v for i, v in enumerate(old)}, str(old)[:200], None, [old], old[0] if old else 0)
    )


def _near(old: Any, draw: Random) -> Any:
    """Return a value that is nearly the old one."""
    if isinstance(old, bool) or old is None:
        return not old
    if isinstance(old, int | float):
        return draw.choice((-old, old + 1, old - 1, old * 1000, old * 10**9, old // 1000, number(draw)))
    if isinstance(old, str):
        cut = draw.randrange(len(old) + 1)
        return draw.choice(
            (old[:cut], old[cut:], old + word(draw), old[:cut] + cell(draw) + old[cut:], old * 3)
        )
    if isinstance(old, list):
        return draw.choice((old[:1], old * 2, old[::-1], [*old, scalar(draw)], [*old, None]))
    return {**old, word(draw): scalar(draw)}


def _deep(old: Any, draw: Random) -> Any:
    for _ in range(draw.choice((1, 2, 50, 150))):
        old = [old] if draw.random() < 0.5 else {"children": [old]}
    return old


def _move(at: Any, key: Any, draw: Random) -> None:
    """Rename a member, or swap or repeat elements."""
    if isinstance(at, dict):
        name = draw.choice((*KEYS, *at, word(draw)))
        at[name] = at.pop(key)
    else:
        other = draw.randrange(len(at))
        at[key], at[other] = at[other], at[key]
        if draw.random() < 0.5:
            at.insert(other, copy.deepcopy(at[key]))


def _everywhere(at: Any, key: Any, draw: Random, donors: list[Place]) -> None:
    """Change every member of the same name: a column of a file, so to say."""
    if not isinstance(key, str):
        at[key] = scalar(draw)
        return
    value, gone = scalar(draw), draw.random() < 0.4
    for box, inside in donors:
        if inside == key and isinstance(box, dict):
            if gone:
                box.pop(key, None)
            else:
                box[key] = value
    if not gone:
        at[key] = value


def written(value: Any, draw: Random, indent: bool = False) -> bytes:
    """Return a document as JSON in one of the layouts that producers use, now and then with a key twice."""
    layout: dict[str, Any] = {"ensure_ascii": draw.random() < 0.7}
    if indent or draw.random() < 0.1:
        layout["indent"] = draw.choice((None, 0, 1, 2))
    elif draw.random() < 0.5:
        layout["separators"] = (",", ":")
    text = _unmarked(json.dumps(value, **layout))
    if draw.random() < 0.05:
        text = _key_twice(text, draw)
    return text.encode("utf-8", "surrogatepass")


def _unmarked(text: str) -> str:
    """Return JSON with the tokens in the places of the texts that stand for them."""
    pieces = _TOKEN.split(text)
    pieces[1::2] = [json.loads(f'"{piece}"') for piece in pieces[1::2]]
    return "".join(pieces)


def _key_twice(text: str, draw: Random) -> str:
    """Return JSON in which a member stands twice, with another value."""
    keys = list(re.finditer(r'"[A-Za-z_ ]{1,30}"\s*:', text))
    if not keys:
        return text
    key = draw.choice(keys)
    token = draw.choice(("1", '"x"', "null", "[]", "{}", "-1"))
    return f"{text[: key.start()]}{key.group()}{token},{text[key.start() :]}"
