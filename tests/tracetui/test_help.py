"""`tracetui help`: guides by topic, by command and by view, terms, a pager where a person reads."""

import os
import sys
from pathlib import Path

import pexpect
import pytest

from capture.errors import UsageError
from tests.tracetui.test_cli import tracetui
from tracetui.guides import TOPICS, guide, title
from tracetui.verbs import VERBS
from tracetui.verbs.help import GUIDES, explain
from tracetui.views import views


def test_the_list_names_every_guide_with_what_it_is_for() -> None:
    done = tracetui("help")
    assert done.returncode == 0 and done.stderr == ""
    for topic in TOPICS:
        assert any(line.split() == [topic, *title(topic).split()] for line in done.stdout.splitlines())
    assert tracetui("help", "help").stdout == done.stdout


def test_a_topic_a_command_and_a_view_lead_to_a_guide() -> None:
    assert tracetui("help", "growth").stdout == guide("growth")
    assert set(GUIDES) == set(VERBS) - {"help"}
    for word in (*GUIDES, *(view.name for view in views())):
        assert explain(word).startswith("# ")
    assert explain("diff") == guide("comparing")


def test_a_term_is_explained_in_one_line() -> None:
    assert explain("Lens").startswith("lens: ") and explain("p95") == explain("p50")
    assert explain("lens").count("\n") == 1


def test_an_unknown_word_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean tracetui help comparing"):
        explain("comparin")
    done = tracetui("help", "qqqq")
    assert done.returncode == 2 and "choose one of: opening" in done.stderr and done.stdout == ""


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
    assert "paged with LESS=-R" in text and guide("growth").split("\n", 1)[0] in text
