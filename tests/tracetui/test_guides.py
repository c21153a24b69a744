"""The guides: every topic has a file, an unknown one names the nearest, and the glossary is read whole."""

from importlib.resources import files

import pytest

from capture.errors import UsageError
from tracetui import guides
from tracetui.guides import TOPICS, glossary, guide, title


def test_every_topic_has_a_file_and_every_file_is_a_topic() -> None:
    there = {p.name.removesuffix(".md") for p in files(guides).iterdir() if p.name.endswith(".md")}
    assert there == set(TOPICS)
    assert len(TOPICS) == len(set(TOPICS))


@pytest.mark.parametrize("topic", TOPICS)
def test_a_guide_begins_with_what_it_is_for(topic: str) -> None:
    text = guide(topic)
    assert text.startswith("# ")
    assert title(topic) and len(title(topic)) <= 66, "the list of the guides has a line each"


def test_an_unknown_topic_names_the_nearest_or_all() -> None:
    with pytest.raises(UsageError, match="did you mean tracetui help growth"):
        guide("grwth")
    with pytest.raises(UsageError, match="choose one of: opening, "):
        guide("zzz")


def test_the_glossary_is_read_whole() -> None:
    terms = glossary()
    lines = [line for line in guide("glossary").splitlines() if line.startswith("- ")]
    assert len(terms) == len(lines)
    assert all(term and meaning.endswith(".") and "\n" not in meaning for term, meaning in terms)
    assert {"lens", "gap", "roof", "floor", "folded", "scale"} <= dict(terms).keys()
