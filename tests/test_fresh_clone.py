"""What guards the edges needs nothing beside the checkout: a fresh clone skips none of it."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent
BESIDE = {"shared", "seed", "document", "SHARED"}  # of conftest: what may be absent
EDGES = (
    "capture/test_bounds.py", "capture/test_contract.py", "capture/test_hostile_json.py",
    "capture/test_hostile_sqlite.py", "capture/test_hostile_text.py", "capture/test_odd_numbers.py",
    "capture/test_strangers.py", "capture/test_stderr_mute.py", "capture/loaders/test_damage.py",
    "test_fuzz.py", "test_kills.py", "tracetui/test_hostile.py", "tracetui/test_hostile_names.py",
    "tracetui/ui/test_failing_view.py", "tracetui/ui/test_lost_explorer.py", "tracetui/ui/test_monkey.py",
    "tracetui/ui/test_multiplexers.py", "tracetui/ui/test_answer_updates.py", "tracetui/ui/test_storms.py",
    "tracetui/ui/test_terminal.py",
)  # fmt: skip


def asked_for(text: str) -> set[str]:
    """Return what a test imports of that which lies beside some checkouts only."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return {name.name for node in imports if node.module == "tests.conftest" for name in node.names} & BESIDE


@pytest.mark.parametrize("place", EDGES)
def test_an_edge_is_guarded_in_a_fresh_clone(place: str) -> None:
    assert asked_for((ROOT / place).read_text()) == set()


def test_what_needs_a_sample_is_found() -> None:
    assert asked_for("from tests.conftest import FIXTURES, shared\n") == {"shared"}
