"""What holds for every compiled part, by its source."""

import re
from pathlib import Path

import capture

ROOT = Path(capture.__file__).parent.parent
FOLDERS = ("capture/loaders/_scan", "engines/processor")
FORMAT = re.compile(r'(?:PyArg_Parse\w*|Py_BuildValue)\([^;"]*"(?P<format>[^"]*)"')


def test_a_part_built_on_a_later_python_runs_on_an_earlier_one() -> None:
    """With the headers of 3.13, `#` in a format makes a part that 3.12 refuses: they leave out its macro."""
    sources = [path.read_text() for folder in FOLDERS for path in (ROOT / folder).glob("*.[ch]")]
    formats = [found["format"] for text in sources for found in FORMAT.finditer(text)]
    assert len(formats) > 3
    assert [text for text in formats if "#" in text] == []
