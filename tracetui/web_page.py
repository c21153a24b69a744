"""One self-contained web page of an answer: sorted and searched in the browser, without a network.

Text from a profile is escaped, and the page's content policy runs no script but its own.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2429; --dim: #5b646d; --ground: #fbfbf9; --band: #e6e8e6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #d3d9e0; --dim: #93a0ac; --ground: #12161b; --band: #1c232b; } }
body { color: var(--ink); background: var(--ground); font: 14px/1.45 system-ui, sans-serif; margin: 1.5em; }
h1 { font-size: 1.3em; } dl { display: grid; grid-template-columns: max-content auto; gap: 0 1em; }
dt, .note { color: var(--dim); } dd { margin: 0; } pre { overflow-x: auto; line-height: 1.2; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--band); cursor: pointer; }
th, td { padding: .15em .6em; text-align: left; white-space: nowrap; }
td:first-child { max-width: 60ch; overflow: hidden; text-overflow: ellipsis; } .n { text-align: right; }
tbody tr:hover { background: var(--band); } [aria-sort=descending]::after { content: " ▼"; }
[aria-sort=ascending]::after { content: " ▲"; }
"""
SCRIPT: Final = """
"use strict";
const table = document.querySelector("table");
if (table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, at) => {
    const text = row.cells[at].dataset.v;
    return text === undefined ? null : heads[at].className === "n" ? Number(text) : text;
  };
  const sort = (at, up) => {
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a, at), y = value(b, at);
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
    heads.forEach(head => head.removeAttribute("aria-sort"));
    heads[at].setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows);
  };
  const toggle = at => {
    const now = heads[at].getAttribute("aria-sort");
    sort(at, now ? now === "descending" : heads[at].className !== "n");
  };
  heads.forEach((head, at) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => toggle(at));
    head.addEventListener("keydown", event => { if (event.key === "Enter") toggle(at); });
  });
  const search = document.querySelector("input");
  search.addEventListener("input", () => {
    const asked = search.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(asked);
  });
  const asked = heads.findIndex(head => "#sort=" + head.dataset.column === location.hash);
  if (asked >= 0) toggle(asked);
}
"""


@dataclass(frozen=True)
class PageColumn:
    """A column of the table: its name in JSON, its heading, and whether it holds numbers."""

    name: str
    heading: str
    numeric: bool


@dataclass(frozen=True)
class WebPage:
    """The contents of a page, from top to bottom."""

    title: str
    facts: Sequence[tuple[str, str]]
    lead: Sequence[str]  # sentences above the rows
    drawing: str
    columns: Sequence[PageColumn]
    cells: Sequence[Sequence[str]]  # as text
    values: Sequence[Sequence[Any]]  # for sorting; None goes last
    notes: Sequence[str]


def format_web_page(page: WebPage) -> str:
    """Return the page as HTML."""
    style, script = map(_compute_policy_hash, (STYLE, SCRIPT))
    policy = f"default-src 'none'; style-src '{style}'; script-src '{script}'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(page.title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(page.title)}</h1>",
        "<dl>",
        *(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in page.facts),
        "</dl>",
        *(f"<p>{escape(sentence)}</p>" for sentence in page.lead),
        f"<pre>{escape(page.drawing)}</pre>" if page.drawing else "",
        *(_iter_table_lines(page) if page.columns else ()),
        *(f'<p class="note">{escape(sentence)}</p>' for sentence in page.notes),
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _iter_table_lines(page: WebPage) -> Iterator[str]:
    yield '<p><input type="search" placeholder="only rows with …" aria-label="only rows with"></p>'
    yield "<table><thead><tr>"
    for column in page.columns:
        kind = ' class="n"' if column.numeric else ""
        yield f'<th{kind} data-column="{escape(column.name)}">{escape(column.heading)}</th>'
    yield "</tr></thead><tbody>"
    for cells, values in zip(page.cells, page.values, strict=True):
        row = zip(page.columns, cells, values, strict=True)
        yield f"<tr>{''.join(_format_page_cell(column, text, value) for column, text, value in row)}</tr>"
    yield "</tbody></table>"


def _format_page_cell(column: PageColumn, text: str, value: Any) -> str:
    """Return a cell; text that was cut shows in full under the pointer."""
    kind = ' class="n"' if column.numeric else ""
    data = "" if value is None or isinstance(value, list) else f' data-v="{escape(str(value))}"'
    tooltip = f' title="{escape(str(value))}"' if isinstance(value, str) and value != text else ""
    return f"<td{kind}{data}{tooltip}>{escape(text)}</td>"


def _compute_policy_hash(text: str) -> str:
    """Return the hash by which the content policy allows a script or style of the page itself."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
