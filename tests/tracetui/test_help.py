"""`tracetui help`: guides by topic, by command and by view, terms, a pager where a person reads."""

import os
import sys
from pathlib import Path

import pexpect
import pytest

from capture.errors import UsageError
from tests.tracetui.in_process import tracetui
from tracetui.guides import TOPICS, read_guide, read_title
from tracetui.verbs import VERBS
from tracetui.verbs.help import GUIDE_OF_COMMAND, find_help
from tracetui.views import load_views


def test_the_list_names_every_guide_with_what_it_is_for() -> None:
    result = tracetui("help")
    assert result.returncode == 0 and result.stderr == ""
    for topic in TOPICS:
        assert any(line.split() == [topic, *read_title(topic).split()] for line in result.stdout.splitlines())
    assert tracetui("help", "help").stdout == result.stdout


def test_a_topic_a_command_and_a_view_lead_to_a_guide() -> None:
    assert tracetui("help", "growth").stdout == read_guide("growth")
    assert set(GUIDE_OF_COMMAND) == set(VERBS) - {"help"}
    for word in (*GUIDE_OF_COMMAND, *(view.name for view in load_views())):
        assert find_help(word).startswith("# ")
    assert find_help("diff") == read_guide("comparing")


def test_a_term_is_explained_in_one_line() -> None:
    assert find_help("Lens").startswith("lens: ") and find_help("p95") == find_help("p50")
    assert find_help("lens").count("\n") == 1


def test_an_unknown_word_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean tracetui help comparing"):
        find_help("comparin")
    result = tracetui("help", "qqqq")
    assert result.returncode == 2 and "choose one of: opening" in result.stderr and result.stdout == ""


@pytest.mark.terminal
def test_a_person_gets_a_pager(tmp_path: Path) -> None:
    """$PAGER is honoured, and less is asked to pass colours on."""
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "paged with LESS=$LESS"\ncat\n')
    pager.chmod(0o755)
    env = {**os.environ, "PAGER": str(pager), "TERM": "xterm"}
    env = {k: v for k, v in env.items() if k not in ("LESS", "MANPAGER")}
    child = pexpect.spawn(sys.executable, ["-m", "tracetui", "help", "growth"], env=env, encoding="utf-8")
    text = child.read()
    child.close()
    assert child.exitstatus == 0
    assert "paged with LESS=-R" in text and read_guide("growth").split("\n", 1)[0] in text
