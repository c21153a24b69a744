"""What the tests share: where the fixtures and the larger samples lie."""

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"
SHARED = Path(__file__).parent.parent.parent / "shared"


def shared(relative: str) -> Path:
    """A large sample kept beside the checkout; the test is skipped where it is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"the sample {relative} is not beside this checkout")
    return path


def seed(number: int) -> Path:
    found = sorted(shared("seeds").glob(f"{number:03d}_*"))
    if not found:
        pytest.skip(f"seed {number} is not beside this checkout")
    return found[0]
