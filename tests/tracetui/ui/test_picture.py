"""The screen as a picture."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from capture.errors import UsageError
from tests.tracetui.ui.hand import decode
from tracetui.look import Look
from tracetui.ui.picture import picture
from tracetui.views import view


def test_the_picture_holds_the_rows_of_the_chosen_run(tmp_path: Path) -> None:
    out = tmp_path / "kernels.svg"
    runs = [decode("first"), decode("second", names=("only_here",))]
    picture(view("kernels"), runs, 1, Look(), (100, 20), out)
    text = "".join(ET.parse(out).getroot().itertext()).replace("\xa0", " ")  # noqa: S314
    assert "only_here" in text and "sampler" not in text
    with pytest.raises(UsageError):
        picture(view("kernels"), runs, 1, Look(), (100, 20), out)
