"""Pytest plugin, named by test_kernels.py: keeps, of tests that are not slow, a case each and one a flag.

With OTHERS in the environment it keeps all the others.
"""

import os

import pytest

OTHERS = "KERNEL_CASES_OTHERS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop cases that bring no other flag, such as gelu: the interpreter takes a second for each."""
    first = _find_first(items)
    items[:] = [item for item in items if (item in first) is (OTHERS not in os.environ)]


def _find_first(items: list[pytest.Item]) -> list[pytest.Item]:
    seen: set[tuple[object, ...]] = set()
    kept = []
    for item in items:
        if item.get_closest_marker("slow"):
            continue
        test = item.nodeid.split("[")[0]
        values = item.callspec.params.items() if hasattr(item, "callspec") else ()
        facts = {(test,), *((test, name, value) for name, value in values if isinstance(value, bool))}
        if not facts <= seen:
            kept.append(item)
            seen |= facts
    return kept
