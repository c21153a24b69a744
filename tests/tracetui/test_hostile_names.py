"""One table: every hostile name × every writer. Text from a file is text, wherever it is written."""

import csv
import io
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from capture.clean_text import clean
from capture.export_runs import export
from capture.import_log import Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests import hostile
from tests.tracetui.in_process import tracetui
from tests.tracetui.test_exports import Page
from tracetui.look import Look
from tracetui.report_formats import FORMATS, format_report
from tracetui.ui.picture import write_picture
from tracetui.views import load_view
from tracetui.web_page import SCRIPT

MARKUP = {
    "image": "![x](http://e.example/t.png)", "link": "[x](javascript:alert(1))", "auto": "<http://e.example>",
    "bare": "http://e.example/ and www.e.example", "img": "<img src=x onerror=alert(1)>",
    "comment": "<!-- x -->", "close": "</details></table>", "cells": "a | b | c", "code": "`x` ``y``",
    "bold": "**x** __y__ ~~z~~ _w_", "heading": "# x", "item": "- x", "number": "1. x", "quote": "> x",
    "rule": "---", "fence": "```", "reference": "[x]: http://e.example", "mention": "@octocat #12",
    "escape": "\\<b\\>\\|", "entity": "&lt;script&gt; &#60;b&#62;", "cdata": "]]><script>", "plus": "+1-2",
    "at": "@SUM(A1)", "under": "a_b_c",
}  # fmt: skip
HALF = "surrogate"  # no frame holds it; loaders replace it before
NAMES = {**{k: v for k, v in hostile.NAMES.items() if k not in ("long64k", HALF)}, **MARKUP}
ALIVE = {"link_open", "image", "html_inline", "html_block", "em_open", "strong_open", "s_open", "code_inline",
         "fence", "code_block", "blockquote_open", "hr", "ordered_list_open"}  # fmt: skip
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff\U000e0000-\U000e0fff]"
)
VIEWS = ("kernels", "tables", "summary", "tree", "steps")

each_name = pytest.mark.parametrize("name", NAMES.values(), ids=list(NAMES))


def safe(name: str) -> str:
    """What a name is after the door: spelt out here, for what is tested stands behind it."""
    return clean(name)


@cache
def run_of(name: str) -> Run:
    """A run in which all that a file may name is this name: kernels, paths, tracks, meta, tables, itself."""
    events = pl.DataFrame(
        {
            "kind": ["kernel", "kernel", "step"], "name": [name, "other", "step"], "t": [0, 20, 0],
            "dur": [10, 5, 30], "step": [0, 0, 0], "path": [name, "x", None], "track": [name, name, None],
            "phase": [name, "decode", "decode"], "lens": ["gpu", "gpu", "wall"], "shape": [name, None, None],
        }
    )  # fmt: skip
    tables = {name or "t": pl.DataFrame({name or "c": [name, "other"], "n": [1, 2]})}
    meta = {"model": name, "device": name, "guess": name, "producer": name}
    return build_run(name, meta, events, Log(source=clean(name)), tables)


def tokens(text: str) -> Iterator[Token]:
    parser = MarkdownIt("gfm-like")
    parser.linkify.set({"fuzzy_link": False})  # nobody else makes links of `a.b`
    for token in parser.parse(text):
        yield token
        yield from token.children or ()


def cells(text: str) -> list[list[str]]:
    """The rows of a Markdown table as a reader sees them."""
    rows: list[list[str]] = []
    parsed = MarkdownIt("gfm-like").parse(text)
    for token, inner in pairwise(parsed):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append("".join(child.content for child in inner.children or ()))
    return rows


MADE_OF = "html head meta title style body h1 dl dt dd p pre input table thead tbody tr th td script"
TAGS = set(MADE_OF.split())


@pytest.mark.corpus
@each_name
def test_markdown(name: str) -> None:
    for asked in VIEWS:
        text = format_report(load_view(asked), [run_of(name)], Look(), "md")
        assert not CONTROL.search(text)
        alive = {token.type for token in tokens(text)} & ALIVE
        assert not alive, (asked, alive, text)
        assert not re.search(r"www\.|https?://", text)
        rows = cells(text)
        assert len({len(row) for row in rows}) <= 1, text
    (actual,) = [
        row[0]
        for row in cells(format_report(load_view("kernels"), [run_of(name)], Look(), "md"))
        if "10 ns" in row
    ]
    shown = safe(name).strip()
    assert actual.strip() == shown or (actual.endswith("…") and shown.startswith(actual[:-1]))


@pytest.mark.corpus
@each_name
def test_csv(name: str) -> None:
    for asked in VIEWS:
        text = format_report(load_view(asked), [run_of(name)], Look(), "csv")
        rows = list(csv.reader(io.StringIO(text)))
        assert len({len(row) for row in rows}) == 1
        live = [
            c for row in rows for c in row if c[:1] in ("=", "+", "-", "@", "\t", "\r") and not _number(c)
        ]
        assert not live
    rows = list(csv.reader(io.StringIO(format_report(load_view("kernels"), [run_of(name)], Look(), "csv"))))
    assert safe(name) in {row[0].removeprefix("'") for row in rows}


def _number(cell: str) -> bool:
    return re.fullmatch(r"[-+]?\d+(\.\d+)?(e-?\d+)?", cell) is not None


@pytest.mark.corpus
@each_name
def test_html(name: str) -> None:
    for asked in VIEWS:
        text = format_report(load_view(asked), [run_of(name)], Look(), "html")
        page = Page(text)
        assert not CONTROL.search(text) and page.scripts == [SCRIPT]
        assert {tag for tag, _ in page.tags} <= TAGS
        attributes = {attribute for _, attributes in page.tags for attribute in attributes}
        assert not [a for a in attributes if a.startswith("on") or a in ("src", "href", "style")]
    page = Page(format_report(load_view("kernels"), [run_of(name)], Look(), "html"))
    assert safe(name) in page.column("name")


@pytest.mark.corpus
@each_name
def test_json(name: str) -> None:
    for asked in VIEWS:
        text = format_report(load_view(asked), [run_of(name)], Look(), "json")
        assert text.isascii() and "\n" not in text
        actual = json.loads(text)
        if asked == "kernels":
            assert safe(name) in {row["name"] for row in actual["rows"]}


@pytest.mark.corpus
@each_name
def test_terminal(name: str) -> None:
    for asked in VIEWS:
        for width, cut in ((80, True), (120, False)):
            text = format_report(load_view(asked), [run_of(name)], Look(), "table", width=width, cut=cut)
            assert not CONTROL.search(text) and "\r" not in text


@pytest.mark.corpus
@each_name
def test_exports_read_back(name: str, tmp_path: Path) -> None:
    for suffix in (".jsonl", ".parquet", ".csv", ".json"):
        out = tmp_path / f"out{suffix}"
        export([run_of(name)], out)
        names = {str(n) for n in load(out, cache=False)[0].events["name"].cast(pl.String)}
        assert safe(name) in {n.removeprefix("'") for n in names}, suffix
    _, *rows = csv.reader(io.StringIO((tmp_path / "out.csv").read_text()))
    assert not [c for row in rows for c in row if c[:1] in ("=", "+", "-", "@") and not _number(c)]
    json.loads((tmp_path / "out.json").read_text())


@pytest.mark.corpus
@each_name
def test_a_comparison_as_markdown(name: str) -> None:
    """The comment of a pull request folds its parts with HTML of its own, and has names as code."""
    text = format_report(load_view("diff"), [run_of(name), run_of(name)], Look(), "md")
    own = re.sub(r"</?(?:details|summary)>", "", text)
    alive = {token.type for token in tokens(own)} & (ALIVE - {"code_inline", "strong_open", "fence"})
    assert not alive and not CONTROL.search(text)


@pytest.mark.corpus
@each_name
def test_file_names_in_messages(name: str, tmp_path: Path) -> None:
    """A file that cannot be read, one that is written, and one that already exists."""
    file = name.encode("utf-8", "ignore").decode().replace("/", "_").replace("\0", "_")[:50] + "x"
    bad = tmp_path / file
    bad.write_text("nothing that anybody reads")
    refused = tracetui("report", "kernels", bad, "--no-cache")
    assert (refused.returncode, refused.stdout) == (3, "")
    out = tmp_path / f"{file}.csv"
    written = tracetui("export", "sample:decode", "-o", out)
    again = tracetui("export", "sample:decode", "-o", out)
    assert (written.returncode, again.returncode) == (0, 2)
    for output in (refused.stderr, written.stderr.splitlines(keepends=True)[-1], again.stderr):
        assert output.count("\n") == 1 and output.endswith("\n")
        assert (
            not CONTROL.search(output) and "internal error" not in output and "fault of its own" not in output
        )


def test_svg(tmp_path: Path) -> None:
    """All names at once, as rows and as the name of the run; the picture holds text and no more."""
    rows = [
        {"kind": "kernel", "name": n, "dur": 1000 - i, "lens": "gpu"} for i, n in enumerate(NAMES.values())
    ]
    run = build_run(
        "<script>alert(1)</script>", {"model": "<img src=x>"}, pl.DataFrame(rows), Log(source="<b>")
    )
    out = tmp_path / "x.svg"
    write_picture(load_view("kernels"), [run], 0, Look(full_names=True), (160, 80), out)
    text = out.read_text()
    assert not CONTROL.search(text)
    tree = ElementTree.fromstring(text)  # noqa: S314 - our own
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert kinds <= {"svg", "style", "defs", "clipPath", "rect", "g", "text", "circle", "line", "title"}
    attributes = {a for element in tree.iter() for a in element.attrib}
    assert not [a for a in attributes if a.startswith("on") or a.endswith("href")]
    shown = "".join(e.text or "" for e in tree.iter() if e.tag.endswith("text")).replace("\xa0", " ")
    assert "<img src=x onerror=alert(1)>" in shown and "<script>alert(1)</script>" in shown


def test_the_table_is_whole() -> None:
    """Thirty names at least, every format of a report, every suffix of an export."""
    from capture.export_runs import WRITERS_BY_SUFFIX

    assert len(NAMES) >= 30
    assert set(FORMATS) == {"table", "json", "csv", "md", "html"}
    assert set(WRITERS_BY_SUFFIX) == {".jsonl", ".parquet", ".csv", ".json"}
