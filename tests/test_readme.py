"""The README is true: its tree, its formats, its views, its commands and its links."""

import re

from tests.readme import README, ROOT, written
from tracetui.verbs import VERBS
from tracetui.views import VIEWS, views

TEXT = README.read_text()


def test_generated_parts_are_fresh() -> None:
    assert written(TEXT) == TEXT, "run: python -m tests.readme"


def test_every_view_is_told() -> None:
    told = set(re.findall(r"\w+", TEXT.split("## Views")[1].split("Keys:")[0]))
    assert {v.name for v in views()} <= told
    assert len(VIEWS) == len(views())


def test_commands_exist() -> None:
    used = set(re.findall(r"tracetui (\w+)", TEXT)) - {"itself"}
    assert used <= set(VERBS) | {"FILE"}, used - set(VERBS)


def test_linked_files_exist() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / link).exists(), link
