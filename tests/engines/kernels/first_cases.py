"""Pytest plugin, named by test_kernels.py: keeps the first case of each test and of each of its flags."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop cases that bring no other flag, such as gelu: the interpreter takes a second for each."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for item in items:
        test = item.nodeid.split("[")[0]
        values = item.callspec.params.items() if hasattr(item, "callspec") else ()
        facts = {(test,), *((test, name, value) for name, value in values if isinstance(value, bool))}
        if not facts <= seen:
            kept.append(item)
            seen |= facts
    items[:] = kept
