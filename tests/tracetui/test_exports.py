"""What people paste: a web page, Markdown, pictures, a session. Text of a profile is text in all of them."""

import base64
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest
from textual.pilot import Pilot

from capture.errors import UsageError
from capture.load_runs import load
from tests.tracetui import agent_truth as truth
from tests.tracetui.in_process import tracetui
from tests.tracetui.ui.hand import play, settle
from tracetui.samples import find_sample
from tracetui.ui.app import Explorer
from tracetui.ui.terminal.driver import CastRecorder
from tracetui.web_page import SCRIPT

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, CHROMIUMS)), None)
NODE = shutil.which("node")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&![x](https://example.com)|`# $(rm)"


class Page(HTMLParser):
    """A page as a browser takes it apart: tags with attributes, the cells of the table, the script."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[list[str]] = []
        self.values: list[list[str | None]] = []
        self.headings: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "tr":
            self.cells.append([])
            self.values.append([])
        if tag == "td":
            self.cells[-1].append("")
            self.values[-1].append(dict(attrs).get("data-v"))
        if tag == "th":
            self.headings.append(dict(attrs)["data-column"] or "")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "td":
            self.cells[-1][-1] += data
        if self._inside == "script":
            self.scripts[-1] += data

    def column(self, name: str) -> list[str | None]:
        at = self.headings.index(name)
        return [row[at] for row in self.values[1:]]


def hostile(folder: Path) -> Path:
    """A profile whose every text tries to be more than text."""
    event = {"kind": "kernel", "name": HOSTILE, "t": 0, "dur": 10, "lens": "gpu", "op": HOSTILE, "step": 0}
    head = {"kind": "run", "schema": 1, "name": HOSTILE, "meta": {"model": HOSTILE, "device": HOSTILE}}
    path = folder / "hostile.jsonl"
    path.write_text("\n".join(map(json.dumps, (head, event))))
    return path


def page_of(*words: str | Path) -> str:
    done = tracetui(*words, "--format", "html")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_page_has_the_rows_of_the_recording() -> None:
    page = Page(page_of("report", "kernels", "sample:decode"))
    recorded = truth.recorded("decode")
    names = page.column("name")
    assert dict(zip(names, map(int, page.column("total_ns")), strict=True)) == recorded["time"]  # type: ignore[arg-type]
    assert dict(zip(names, map(int, page.column("count")), strict=True)) == recorded["count"]  # type: ignore[arg-type]


@pytest.mark.parametrize("view", ["kernels", "summary", "fix", "layers", "timeline"])
def test_text_from_outside_is_text_on_a_page(tmp_path: Path, view: str) -> None:
    text = page_of("report", view, hostile(tmp_path))
    page = Page(text)
    assert page.scripts == [SCRIPT]
    assert not {tag for tag, _ in page.tags} & {"img", "a", "iframe", "link", "object", "form"}
    assert not any(key.startswith("on") or key in ("src", "href") for _, attrs in page.tags for key in attrs)
    if view == "kernels":
        assert page.column("name") == [HOSTILE]  # whole under the pointer, short in the cell


def test_its_policy_allows_its_own_script_and_style_alone() -> None:
    text = page_of("report", "kernels", "sample:decode")
    (policy,) = (attrs["content"] for _, attrs in Page(text).tags if attrs.get("http-equiv"))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert policy is not None and style is not None
    allowed = re.findall(r"'(sha256-[^']+)'", policy)
    digests = [hashlib.sha256(part.encode()).digest() for part in (style[1], SCRIPT)]
    assert allowed == [f"sha256-{base64.b64encode(d).decode()}" for d in digests]
    assert policy.startswith("default-src 'none'")


def test_a_diff_is_one_page(tmp_path: Path) -> None:
    out = tmp_path / "diff.html"
    result = tracetui("export", "sample:decode", "sample:slowed", "--view", "diff", "-o", out)
    assert result.returncode == 0, result.stderr
    text = out.read_text()
    assert "undecided" in text.partition("<table")[0] or "slower" in text.partition("<table")[0]
    assert [v for v in Page(text).column("verdict") if v == "slower"] == ["slower"]
    assert tracetui("export", "sample:decode", "--view", "kernels", "-o", out).returncode == 2


FAKE_BROWSER = """
const cell = (text, value, numeric) => ({dataset: value === null ? {} : {v: value}, textContent: text,
  className: numeric ? "n" : "", listeners: {}, attributes: {},
  addEventListener(kind, call) { this.listeners[kind] = call; },
  getAttribute(name) { return this.attributes[name] ?? null; },
  setAttribute(name, value) { this.attributes[name] = value; },
  removeAttribute(name) { delete this.attributes[name]; }});
const row = (name, count) => ({cells: [cell(name, name, false), cell(count ?? "", count, true)],
  get textContent() { return this.cells.map(c => c.textContent).join(" "); }});
const heads = [cell("name", null, false), cell("count", null, true)];
heads[0].dataset.column = "name"; heads[1].dataset.column = "count";
const body = {rows: [row("b", "9"), row("a", "10"), row("c", null)], append(...rows) { this.rows = rows; }};
const input = {value: "", addEventListener(kind, call) { this.call = call; }};
globalThis.location = {hash: "#sort=count"};
globalThis.document = {querySelector: what => what === "table"
  ? {tBodies: [body], tHead: {rows: [{cells: heads}]}} : input};
const order = () => body.rows.map(r => r.cells[0].textContent).join("");
"""
ASKED = """
const seen = [order()];
heads[1].listeners.click(); seen.push(order());
heads[0].listeners.keydown({key: "Enter"}); seen.push(order());
heads[0].listeners.click(); seen.push(order());
input.value = "B"; input.call();
console.log(JSON.stringify([seen, body.rows.filter(r => !r.hidden).length]));
"""


@pytest.mark.skipif(NODE is None, reason="no node here")
def test_its_script_sorts_numbers_and_text_and_searches() -> None:
    """Largest first, then smallest; what is unknown stays last; text from A; search by any part."""
    script = f"{FAKE_BROWSER}{{{SCRIPT.replace(chr(34) + 'use strict' + chr(34) + ';', '')}}}{ASKED}"
    result = subprocess.run([str(NODE), "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == [["abc", "bac", "abc", "cba"], 1]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_sorts_it(tmp_path: Path) -> None:
    out = tmp_path / "kernels.html"
    tracetui("export", "sample:decode", "--view", "kernels", "-o", out)
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command.append(f"{out.as_uri()}#sort=p95_ns")
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    column = [int(value) for value in Page(result.stdout).column("p95_ns") if value is not None]
    assert len(column) > 10 and column == sorted(column, reverse=True)


def test_markdown_and_text_are_written_as_they_are_printed(tmp_path: Path) -> None:
    for suffix, format in ((".md", "md"), (".txt", "table")):
        out = tmp_path / f"kernels{suffix}"
        tracetui("export", "sample:decode", "--view", "kernels", "--size", "100x30", "-o", out)
        actual = tracetui("report", "kernels", "sample:decode", "--format", format).stdout
        assert out.read_text().split() == actual.split()


def svg_text(path: Path) -> str:
    return "".join(ET.parse(path).getroot().itertext()).replace("\xa0", " ")  # noqa: S314


def test_a_picture_from_the_screen_has_no_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def save(app: Explorer, pilot: "Pilot[Any]") -> None:
        await pilot.press("x", "ctrl+u", *"shot.svg", "enter")
        for _ in range(200):
            await pilot.pause(0.02)
            if (tmp_path / "shot.svg").exists():
                break
        await settle(pilot)

    play(save, load(find_sample("decode"), cache=False))
    shown = svg_text(tmp_path / "shot.svg")
    assert "ffn_gate_up" in shown and "quit" in shown
    assert "Enter writes it" not in shown and "shot.svg" not in shown


def test_a_picture_loads_nothing(tmp_path: Path) -> None:
    out = tmp_path / "kernels.svg"
    tracetui("export", "sample:decode", "--size", "80x20", "-o", out)
    text = out.read_text()
    assert "@font-face" not in text and "script" not in text
    assert re.findall(r'(?:href|src)="?[^#]', text) == []
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= set(re.findall(r"url\((#[^)]*)\)", text))


def test_text_from_outside_is_text_in_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "hostile.svg"
    result = tracetui("export", hostile(tmp_path), "--size", "160x20", "-o", out)
    assert result.returncode == 0, result.stderr
    tags = {element.tag.rpartition("}")[2] for element in ET.parse(out).iter()}  # noqa: S314
    assert not tags & {"script", "img", "image", "a", "foreignObject"}
    assert "<script>alert(1)" in svg_text(out)


def test_points_are_drawn_without_a_browser(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="the extra png is not installed")
    svg, out = tmp_path / "kernels.svg", tmp_path / "kernels.png"
    for path in (svg, out):
        assert tracetui("export", "sample:decode", "--size", "80x20", "-o", path).returncode == 0
    data = out.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    box = [float(n) for n in str(ET.parse(svg).getroot().get("viewBox")).split()]  # noqa: S314
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert width == pytest.approx(1.5 * box[2], abs=2) and height == pytest.approx(1.5 * box[3], abs=2)
    parts = [data[m.end() : m.end() + int.from_bytes(data[m.start() - 4 : m.start()], "big")]
             for m in re.finditer(b"IDAT", data)]  # fmt: skip
    assert len(set(zlib.decompress(b"".join(parts)))) > 50  # letters have many shades, a blank sheet has one


def test_without_the_library_the_way_to_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    result = tracetui("export", "sample:decode", "--size", "60x12", "-o", tmp_path / "x.png")
    assert result.returncode == 2 and "tracetui[png]" in result.stderr
    assert not (tmp_path / "x.png").exists()


@pytest.mark.terminal
def test_a_session_is_an_asciicast(tmp_path: Path) -> None:
    cast = tmp_path / "session.cast"
    words = ["-m", "tracetui", "open", "sample:decode", "--cast", str(cast)]
    own = os.environ | {"TERM": "xterm-256color"}
    child = pexpect.spawn(sys.executable, words, dimensions=(24, 90), encoding="utf-8", timeout=60, env=own)
    child.expect_exact("Kernels")
    child.send("2")
    child.expect_exact("1/16")  # the place in the table, drawn after its rows
    child.send("q")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    head, *events = map(json.loads, cast.read_text().splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, 90, 24)
    assert [e[0] for e in events] == sorted(e[0] for e in events) and {e[1] for e in events} == {"o"}
    screen = pyte.Screen(90, 24)
    stream, shown = pyte.Stream(screen), []
    for _, _, data in events:
        stream.feed(data)
        shown.append("\n".join(screen.display))
    assert any("ffn_gate_up" in picture and "1/16" in picture for picture in shown)
    with pytest.raises(UsageError, match="exists already"):
        CastRecorder(cast)
