"""How many numbers the statistics of a comparison stand on."""

import re
from pathlib import Path

from tracetui.compare import params


def test_the_statistics_have_at_most_25_constants() -> None:
    text = Path(params.__file__).read_text()
    statistics = text.split("# Statistics\n")[1].split("# Which runs, rows and steps belong together")[0]
    names = re.findall(r"^([A-Z_]+): Final", statistics, re.MULTILINE)
    assert 20 <= len(names) <= 25


def test_every_constant_is_used() -> None:
    code = "\n".join(path.read_text() for path in Path(params.__file__).parents[1].rglob("*.py"))
    assert [name for name in vars(params) if name.isupper() and f"params.{name}" not in code] == []
