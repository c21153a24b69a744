"""The moving picture of the README: `python -m tests.moving_picture OUT.svg` records a session and draws it.

The session is recorded by `tracetui open --cast`; each picture of it that stands for a while becomes a frame
of an SVG that moves by its style sheet alone, without a script. `draw` takes any asciicast of version 2.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pexpect
import pyte

SIZE: Final = (100, 28)
KEYS: Final = ("2", "s", "3", "4", "F", "?", "q")  # what is typed, each after the answer to the last
STANDS: Final = 0.5  # seconds without a change that make a picture a frame
SHOWN: Final = 2.2  # seconds that a frame is shown
CELL: Final = (8.4, 18.0)  # points
INK: Final = "#d3d9e0"
GROUND: Final = "#12161b"
_NAMED: Final = {
    "black": "#000000", "red": "#cd3131", "green": "#2fbf8f", "brown": "#e69f00", "blue": "#56b4e9",
    "magenta": "#cc79a7", "cyan": "#7cc4f0", "white": "#d3d9e0",
}  # fmt: skip

Frame = tuple[str, ...]  # a row of SVG each


def record(cast: Path) -> None:
    """Walk through a sample and write the session as an asciicast."""
    command = ["-m", "tracetui", "open", "sample:decode", "--cast", str(cast)]
    env = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "XDG_STATE_HOME": str(cast.parent),
    }
    env.pop("NO_COLOR", None)
    child = pexpect.spawn(
        sys.executable, command, dimensions=SIZE[::-1], encoding="utf-8", timeout=60, env=env
    )
    child.expect_exact("time by")
    for key in KEYS:
        _wait(child)
        child.send(key)
    child.expect(pexpect.EOF)


def _wait(child: Any) -> None:
    """Wait until nothing has come for a while."""
    quiet = time.monotonic() + 2 * STANDS
    while time.monotonic() < quiet:
        try:
            child.read_nonblocking(1 << 16, timeout=0.1)
            quiet = time.monotonic() + 2 * STANDS
        except pexpect.TIMEOUT:
            continue


def draw(cast: Path) -> str:
    """Return a session as one SVG that moves."""
    head, *events = map(json.loads, cast.read_text(encoding="utf-8").splitlines())
    size = head["width"], head["height"]
    return _svg(list(frames(events, size)), size)


def frames(events: Sequence[Sequence[Any]], size: tuple[int, int]) -> Iterator[Frame]:
    """Yield each picture that stood for a while and is unlike the one before it."""
    screen = pyte.Screen(*size)
    stream, last = pyte.Stream(screen), None
    ends = [*(event[0] for event in events[1:]), float("inf")]
    for (at, kind, data), end in zip(events, ends, strict=True):
        if kind == "o":
            stream.feed(data)
        picture = tuple(_row(screen, y) for y in range(size[1]))
        if STANDS <= end - at < float("inf") and picture != last:
            last = picture
            yield picture


def _row(screen: pyte.Screen, y: int) -> str:
    """Return a line of the screen as SVG, its ground first."""
    grounds, texts = [], []
    cells = [screen.buffer[y][x] for x in range(screen.columns)]
    place = 0
    for style, group in groupby(cells, key=_style):
        text = "".join(cell.data for cell in group)
        ink, ground, bold = style
        x, width = place * CELL[0], len(text) * CELL[0]
        if ground != GROUND:
            grounds.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{CELL[1]}" fill="{ground}"/>')
        if text.strip():
            weight = ' font-weight="bold"' if bold else ""
            words = escape(text).replace(" ", "\u00a0")
            texts.append(
                f'<text x="{x:.1f}" y="13.5" textLength="{width:.1f}" fill="{ink}"{weight}>{words}</text>'
            )
        place += len(text)
    return "".join((*grounds, *texts))


def _style(cell: Any) -> tuple[str, str, bool]:
    """Return ink, ground and weight of a cell."""
    ink, ground = _colour(cell.fg, INK), _colour(cell.bg, GROUND)
    return (ground, ink, cell.bold) if cell.reverse else (ink, ground, cell.bold)


def _colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return _NAMED.get(name, f"#{name}" if len(name) == 6 else default)


def _svg(pictures: Sequence[Frame], size: tuple[int, int]) -> str:
    """Return the frames one after another; a line that several have stands once."""
    rows = {row: f"r{number}" for number, row in enumerate(dict.fromkeys(r for p in pictures for r in p))}
    width, height, length = size[0] * CELL[0], size[1] * CELL[1], SHOWN * len(pictures)
    part = 100 / len(pictures)
    style = (
        f"text{{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace}} .f{{visibility:hidden;"
        f"animation:show {length:.1f}s step-end infinite}} "
        f"@keyframes show{{0%{{visibility:visible}}{part:.3f}%{{visibility:hidden}}}}"
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{style}</style>",
        f'<rect width="100%" height="100%" fill="{GROUND}"/><defs>',
        *(f'<g id="{name}">{row}</g>' for row, name in rows.items() if row),
        "</defs>",
    ]
    for number, picture in enumerate(pictures):
        lines.append(f'<g class="f" style="animation-delay:{number * SHOWN:.1f}s">')
        lines += [f'<use href="#{rows[row]}" y="{y * CELL[1]:.1f}"/>' for y, row in enumerate(picture) if row]
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "session.cast"
        record(session)
        Path(sys.argv[1]).write_text(draw(session), encoding="utf-8")
