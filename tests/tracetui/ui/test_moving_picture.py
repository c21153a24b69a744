"""The moving picture: frames are what stood for a while, text is text, nothing is loaded or run."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.moving_picture import SHOWN, draw, frames

HEAD = {"version": 2, "width": 10, "height": 2}


def test_a_frame_is_what_stood_for_a_while() -> None:
    events = [
        [0.0, "o", "one"],
        [1.0, "o", "\x1b[H\x1b[2Jtwo"],
        [1.1, "o", "\r\nthree"],
        [3.0, "o", "\x1b[2J"],
    ]
    pictures = list(frames(events, (10, 2)))
    assert [re.findall(r">([^<]+)</text>", "".join(p)) for p in pictures] == [["one" + "\xa0" * 7], [
        "two" + "\xa0" * 7, "three" + "\xa0" * 5]]  # fmt: skip


def test_it_moves_by_its_style_alone(tmp_path: Path) -> None:
    cast = tmp_path / "x.cast"
    events = [[0.0, "o", "\x1b[38;2;1;2;3m<b>&\x1b[0m"], [1.0, "o", "\x1b[H\x1b[7mtwo"], [2.0, "o", "end"]]
    cast.write_text("\n".join(map(json.dumps, (HEAD, *events))))
    svg = draw(cast)
    root = ET.fromstring(svg)  # noqa: S314
    text = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert any(t and t.startswith("<b>&") for t in text) and 'fill="#010203"' in svg
    assert "script" not in svg and re.findall(r"https?://(?!www\.w3\.org/2000/svg)", svg) == []
    shown = [g.get("style") for g in root.iter() if g.get("class") == "f"]
    assert shown == ["animation-delay:0.0s", f"animation-delay:{SHOWN:.1f}s"]
    names = {g.get("id") for g in root.iter() if g.get("id")}
    assert {(use.get("href") or "")[1:] for use in root.iter() if use.tag.endswith("}use")} == names
