"""The guides: every topic has a file, an unknown one names the nearest, the glossary explains the screen."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from capture.errors import UsageError
from capture.load_runs import load
from tracetui import guides, units
from tracetui.guides import TOPICS, read_glossary, read_guide, read_title
from tracetui.look import Look
from tracetui.samples import find_sample
from tracetui.views import ask, load_views

# Headings that need no explanation, and those of statistics and tables that the guide of their view explains.
PLAIN = """
    a at axis b bar byte/s bytes class constant cycles depth device dur fastest finding first flop/s flops
    function kind label last message metric moved n name odd offsets outliers p part path per row section
    severity shape slowest steps text tokens unit what
"""


def test_every_topic_has_a_file_and_every_file_is_a_topic() -> None:
    there = {p.name.removesuffix(".md") for p in files(guides).iterdir() if p.name.endswith(".md")}
    assert there == set(TOPICS)
    assert len(TOPICS) == len(set(TOPICS))


@pytest.mark.parametrize("topic", TOPICS)
def test_a_guide_begins_with_what_it_is_for(topic: str) -> None:
    text = read_guide(topic)
    assert text.startswith("# ")
    assert read_title(topic) and len(read_title(topic)) <= 66, "the list of the guides has a line each"


def test_an_unknown_topic_names_the_nearest_or_all() -> None:
    with pytest.raises(UsageError, match="did you mean tracetui help growth"):
        read_guide("grwth")
    with pytest.raises(UsageError, match="choose one of: opening, "):
        read_guide("zzz")


def test_the_glossary_is_read_whole() -> None:
    terms = read_glossary()
    lines = [line for line in read_guide("glossary").splitlines() if line.startswith("- ")]
    assert len(terms) == len(lines)
    assert all(term and meaning.endswith(".") and "\n" not in meaning for term, meaning in terms)
    assert {"lens", "gap", "roof", "floor", "folded", "scale"} <= dict(terms).keys()


def test_every_heading_of_a_table_is_a_term_or_plain() -> None:
    known = {*PLAIN.split()} | {part.lower() for term, _ in read_glossary() for part in term.split(", ")}
    runs = [load(find_sample(name), cache=False)[0] for name in ("decode", "slowed")]
    columns = {c for view in load_views() for c in (*view.columns, *ask(view, runs, Look()).rows.columns)}
    files_of_runs = {Path(run.log.source).name for run in runs}  # a matrix has a column a run
    headings = {units.format_heading(column).lower() for column in columns} - files_of_runs
    assert {h for h in headings if not parts_of(h) & known} == set()


def parts_of(heading: str) -> set[str]:
    """Return a heading, and what is left of it without its side or the figure that it adds to a term."""
    bare = re.sub(r"^(d|z|p|u|median) (log )?", "", re.sub(r" (a|b|first|last)$", "", heading))
    return {heading, bare, *(bare.removesuffix(f" {figure}") for figure in ("share", "low", "high", "total"))}
