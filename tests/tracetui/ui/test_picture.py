"""The screen as a picture."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from capture.errors import UsageError
from tests.tracetui.ui.hand import decode
from tracetui.cli import main
from tracetui.look import Look
from tracetui.ui.picture import write_picture
from tracetui.views import load_view


def test_the_picture_holds_the_rows_of_the_chosen_run(tmp_path: Path) -> None:
    out = tmp_path / "kernels.svg"
    runs = [decode("first"), decode("second", names=("only_here",))]
    write_picture(load_view("kernels"), runs, 1, Look(), (100, 20), out)
    text = "".join(ET.parse(out).getroot().itertext()).replace("\xa0", " ")  # noqa: S314
    assert "only_here" in text and "sampler" not in text
    with pytest.raises(UsageError):
        write_picture(load_view("kernels"), runs, 1, Look(), (100, 20), out)


def test_a_picture_is_written_over_only_when_forced(tmp_path: Path) -> None:
    out = tmp_path / "kernels.svg"
    out.write_text("precious")
    source = Path(__file__).parents[2] / "fixtures" / "native" / "flat.jsonl"
    command = ["export", str(source), "-o", str(out), "--size", "60x12"]
    assert main(command) != 0
    assert out.read_text() == "precious"
    assert main([*command, "--force"]) == 0
    assert out.read_text().startswith("<svg")
